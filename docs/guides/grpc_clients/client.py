"""Asks a model over gRPC with the classes that protoc makes.

python client.py [HOST:PORT]
"""

import struct
import sys

import grpc
import grpc_service_pb2 as triton
from grpc_service_pb2_grpc import GRPCInferenceServiceStub

SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:8001"


def text_input(name, text, shape):
    """Return an input tensor with one string."""
    contents = triton.InferTensorContents(bytes_contents=[text.encode()])
    return triton.ModelInferRequest.InferInputTensor(
        name=name, datatype="BYTES", shape=shape, contents=contents
    )


def read_text(response, index):
    """Return the one string of an output: its length in four bytes, then UTF-8."""
    raw = response.raw_output_contents[index]
    [length] = struct.unpack_from("<I", raw)
    return raw[4 : 4 + length].decode()


def main():
    with grpc.insecure_channel(SERVER) as channel:
        server = GRPCInferenceServiceStub(channel)

        request = triton.ModelInferRequest(
            model_name="string_upper", inputs=[text_input("TEXT", "hello", [1, 1])]
        )
        print(read_text(server.ModelInfer(request, timeout=10), 0))

        request = triton.ModelInferRequest(
            model_name="tokens", inputs=[text_input("TEXT", "one word after the other", [1])]
        )
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        for message in server.ModelStreamInfer(iter([request])):
            if message.error_message:
                raise SystemExit(message.error_message)
            response = message.infer_response
            if response.raw_output_contents:
                place = [output.name for output in response.outputs].index("TOKEN")
                print(read_text(response, place))
            if response.parameters["triton_final_response"].bool_param:
                break


try:
    main()
except grpc.RpcError as error:
    sys.exit(f"{SERVER}: {error.details()}")
