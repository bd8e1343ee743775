// Asks a model over gRPC: node client.js [HOST:PORT]; needs npm install @grpc/grpc-js @grpc/proto-loader
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const SERVER = process.argv[2] || "localhost:8001";
const definition = protoLoader.loadSync("grpc_service.proto", {
  includeDirs: [process.env.PROTOS || "protos"],
  keepCase: true, // names as in the .proto file: model_name, not modelName
  arrays: true, // also where a message has none of them
  objects: true,
});
const { inference } = grpc.loadPackageDefinition(definition);
const server = new inference.GRPCInferenceService(SERVER, grpc.credentials.createInsecure());

// An input tensor with one string.
function textInput(name, text, shape) {
  return { name, datatype: "BYTES", shape, contents: { bytes_contents: [Buffer.from(text)] } };
}

// The one string of an output: its length in four bytes, then UTF-8.
function readText(response, name) {
  const raw = response.raw_output_contents[response.outputs.findIndex((o) => o.name === name)];
  return raw.toString("utf8", 4, 4 + raw.readUInt32LE(0));
}

function inferOnce() {
  const request = { model_name: "string_upper", inputs: [textInput("TEXT", "hello", [1, 1])] };
  const options = { deadline: Date.now() + 10_000 };
  return new Promise((resolve, reject) => {
    server.ModelInfer(request, options, (error, response) => {
      if (error) return reject(error);
      resolve(readText(response, "UPPER"));
    });
  });
}

function inferStream(onToken) {
  return new Promise((resolve, reject) => {
    const call = server.ModelStreamInfer();
    call.on("data", ({ error_message, infer_response: response }) => {
      if (error_message) return reject(new Error(error_message));
      if (response.outputs.length) onToken(readText(response, "TOKEN"));
      if (response.parameters.triton_final_response.bool_param) call.end();
    });
    call.on("error", reject); // also after call.cancel(), which the model sees
    call.on("end", resolve);
    call.write({
      model_name: "tokens",
      inputs: [textInput("TEXT", "one word after the other", [1])],
      parameters: { triton_enable_empty_final_response: { bool_param: true } },
    });
  });
}

async function main() {
  console.log(await inferOnce());
  await inferStream((token) => console.log(token));
  server.close();
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
