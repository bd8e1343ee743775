"""Every form that an inference callable may have, and some that it may not."""

import asyncio
import functools
import threading

import numpy as np
from common import DECOUPLED, PLAIN, tensors

INPUT, OUTPUT = tensors("a"), tensors("b")


def double(requests):
    return [{"b": request["a"] * 2} for request in requests]


class Model:
    def __init__(self, factor=2):
        self.factor = factor

    def infer(self, requests):
        return [{"b": request["a"] * self.factor} for request in requests]

    async def infer_async(self, requests):
        await asyncio.sleep(0)
        return self.infer(requests)

    def each(self, requests):
        for number in range(3):
            yield [{"b": request["a"] + number} for request in requests]

    @staticmethod
    def static(requests):
        return double(requests)

    @classmethod
    def of_class(cls, requests):
        return cls(4).infer(requests)


class Called(Model):
    def __call__(self, requests):
        return self.infer(requests)


class CalledAsync(Model):
    async def __call__(self, requests):
        return await self.infer_async(requests)


class CalledEach(Model):
    def __call__(self, requests):
        yield from self.each(requests)


def times(requests, factor):
    return [{"b": request["a"] * factor} for request in requests]


async def coroutine(requests):
    await asyncio.sleep(0)
    return double(requests)


async def each_async(requests):
    for number in range(3):
        await asyncio.sleep(0)
        yield [{"b": request["a"] + number} for request in requests]


def once(requests):
    yield double(requests)


async def once_async(requests):
    yield double(requests)


def twice(requests):
    yield double(requests)
    yield double(requests)


def never(requests):
    return
    yield


async def fails_async(requests):
    raise ValueError("raised by a coroutine")


def fails_amid(requests):
    yield double(requests)
    raise ValueError("raised between responses")


def fails_first(requests):
    raise ValueError("raised before a response")
    yield


def empty_then_more(requests):
    yield [{} for _ in requests]
    yield double(requests)


def wrong_amid(requests):
    yield double(requests)
    yield [{"b": [1.0, 2.0]} for _ in requests]


_both = threading.Barrier(2)


def meets_the_other(requests):
    """Ends only while another of its kind is running."""
    _both.wait(20)
    return double(requests)


def meets_the_other_too(requests):
    return meets_the_other(requests)


def of_threads(requests):
    thread = threading.current_thread()
    facts = [thread is threading.main_thread(), thread.daemon]
    return [{"b": np.array(facts, np.float32)} for _ in requests]


FORMS = {
    "function": double,
    "lambda": lambda requests: [{"b": request["a"] * 2} for request in requests],
    "method": Model(3).infer,
    "static_method": Model.static,
    "class_method": Model.of_class,
    "callable_object": Called(5),
    "async_callable_object": CalledAsync(6),
    "partial": functools.partial(times, factor=7),
    "coroutine_function": coroutine,
    "async_method": Model(3).infer_async,
    "generator_once": once,
    "async_generator_once": once_async,
    "generator_twice": twice,
    "generator_never": never,
    "coroutine_that_fails": fails_async,
    "lambda_of_a_coroutine": lambda requests: coroutine(requests),
    "lambda_of_a_generator": lambda requests: once(requests),
    "list_of_one": [double],
    "tuple_of_callables": (double, Called(2)),
    "two_callables": [meets_the_other, meets_the_other_too],
    "threads": of_threads,
}

STREAMS = {
    "stream_generator": Model().each,
    "stream_async_generator": each_async,
    "stream_callable_object": CalledEach(),
    "stream_function": double,
    "stream_coroutine": coroutine,
    "stream_never": never,
    "stream_fails_amid": fails_amid,
    "stream_fails_first": fails_first,
    "stream_empty_then_more": empty_then_more,
    "stream_wrong_amid": wrong_amid,
}


def bind(triton):
    for name, function in FORMS.items():
        triton.bind(name, function, INPUT, OUTPUT, config=PLAIN)
    for name, function in STREAMS.items():
        triton.bind(name, function, INPUT, OUTPUT, config=DECOUPLED)
