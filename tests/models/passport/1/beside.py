HERE = "beside the model"
