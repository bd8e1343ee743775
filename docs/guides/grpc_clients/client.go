// Asks a model over gRPC: go run client.go [HOST:PORT]
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"

	"example.com/client/inference"
)

// textInput returns an input tensor with one string.
func textInput(name, text string, shape ...int64) *inference.ModelInferRequest_InferInputTensor {
	return &inference.ModelInferRequest_InferInputTensor{
		Name: name, Datatype: "BYTES", Shape: shape,
		Contents: &inference.InferTensorContents{BytesContents: [][]byte{[]byte(text)}},
	}
}

// readText returns the one string of an output: its length in four bytes, then UTF-8.
func readText(response *inference.ModelInferResponse, name string) string {
	for index, output := range response.Outputs {
		if output.Name == name {
			raw := response.RawOutputContents[index]
			return string(raw[4 : 4+binary.LittleEndian.Uint32(raw)])
		}
	}
	return ""
}

func inferOnce(server inference.GRPCInferenceServiceClient) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	response, err := server.ModelInfer(ctx, &inference.ModelInferRequest{
		ModelName: "string_upper",
		Inputs:    []*inference.ModelInferRequest_InferInputTensor{textInput("TEXT", "hello", 1, 1)},
	})
	if err != nil {
		return err
	}
	fmt.Println(readText(response, "UPPER"))
	return nil
}

func inferStream(server inference.GRPCInferenceServiceClient) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // the model sees it
	stream, err := server.ModelStreamInfer(ctx)
	if err != nil {
		return err
	}
	yes := &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: true}}
	err = stream.Send(&inference.ModelInferRequest{
		ModelName: "tokens",
		Inputs: []*inference.ModelInferRequest_InferInputTensor{
			textInput("TEXT", "one word after the other", 1),
		},
		Parameters: map[string]*inference.InferParameter{"triton_enable_empty_final_response": yes},
	})
	if err != nil {
		return err
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		if message.ErrorMessage != "" {
			return fmt.Errorf("%s", message.ErrorMessage)
		}
		response := message.InferResponse
		if len(response.Outputs) > 0 {
			fmt.Println(readText(response, "TOKEN"))
		}
		if response.Parameters["triton_final_response"].GetBoolParam() {
			return stream.CloseSend()
		}
	}
}

func main() {
	address := "localhost:8001"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	connection, err := grpc.Dial(address, grpc.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	server := inference.NewGRPCInferenceServiceClient(connection)
	if err := inferOnce(server); err != nil {
		log.Fatal(err)
	}
	if err := inferStream(server); err != nil {
		log.Fatal(err)
	}
}
