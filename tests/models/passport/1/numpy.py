raise AssertionError("a file beside the model stands in front of the packages of its environment")
