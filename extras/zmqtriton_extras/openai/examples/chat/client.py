"""Chats with the server: `python client.py [--url HOST:PORT] [QUESTION ...]`."""

import argparse
import sys

import openai

QUESTIONS = ["Tell me about sockets.", "How does a thread wait for another one?"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("questions", nargs="*", default=QUESTIONS)
    arguments = parser.parse_args()
    client = openai.OpenAI(base_url=f"http://{arguments.url}/v1", api_key="none", max_retries=0)
    messages = []
    try:
        for question in arguments.questions:
            print(f"> {question}")
            messages.append({"role": "user", "content": question})
            answer = ""
            for event in client.chat.completions.create(
                model="chat", messages=messages, stream=True
            ):
                words = event.choices[0].delta.content or ""
                print(words, end="", flush=True)
                answer += words
            print()
            messages.append({"role": "assistant", "content": answer})
    except openai.APIConnectionError as error:
        sys.exit(f"no server answers on {arguments.url}, see README.md: {error}")


if __name__ == "__main__":
    main()
