import random
import select
import sys
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def _stub():
    """The object that runs this process, found where no model should look."""
    frame = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if type(owner).__module__ == "zmqtriton_stub.loop":
            return owner
        frame = frame.f_back
    raise RuntimeError("the stub's loop has changed its name")


class TritonPythonModel:
    """Sends COUNT messages through a DOOR: three quarters mutated from what it recorded there."""

    def initialize(self, args):
        self._random = random.Random(7)
        self._recorded = []

    def execute(self, requests):
        stub = _stub()
        # all that a model can reach, it can reach so
        self._record(stub._core.link)
        responses = []
        for request in requests:
            door = pb_utils.get_input_tensor_by_name(request, "DOOR").as_numpy()[0].decode()
            count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
            getattr(self, "_" + door)(stub, count)
            sent = pb_utils.Tensor("SENT", np.array([count], np.int32))
            responses.append(pb_utils.InferenceResponse(output_tensors=[sent]))
        return responses

    def _record(self, link):
        """Keeps a copy of each message of this process, from the second request on."""
        send = link.send
        if send.__name__ == "recording":
            return

        def recording(frames):
            self._recorded.append(list(frames))
            send(frames)

        link.send = recording

    def _nothing(self, stub, count):
        """Only records."""

    def _stubs(self, stub, count):
        for _ in range(count):
            # past what records
            stub._core.link.line.send(self._mutant(self._recorded))

    def _requests(self, stub, count):
        from zmqtriton_floor import endpoints, wire
        from zmqtriton_floor.zmtp import Dealer

        birth = stub._bootstrap  # as any code of this process finds it
        socket = Dealer(endpoints.requests_address(birth.directory, birth.epoch))
        hello = wire.encode(wire.Hello(birth.serial, birth.token, birth.epoch))
        socket.put([hello])
        body = wire.encode_body(wire.RequestBody("", {}, [], []))
        rows = [wire.Request(5, 1, "", -1, 0, 0, 0, 0, 1, 0, 0)]
        samples = [
            [wire.encode(wire.Infer(rows)), body],
            [wire.encode(wire.Cancel([5, 6]))],
            [wire.encode(wire.AskStatistics(7, "add_sub", -1))],
            [hello],
        ]
        for _ in range(count):
            socket.put(self._mutant(samples))
            socket.flush()
            while socket.has_input():
                socket.receive()
        time.sleep(0.2)
        socket.close(1000)

    def _lifeline(self, stub, count):
        from zmqtriton_floor import wire

        samples = [
            [wire.encode(wire.LogLine("I", "model.py", 1, "hello"))],
            [wire.encode(wire.Synced(1))],
            [wire.encode(wire.Call(1, "index", "{}"))],
            [wire.encode(wire.ModelLoaded())],
            [wire.encode(wire.ConfigCompleted("{}"))],
            [wire.encode(wire.Drained(1))],
        ]
        socket = stub._lifeline._socket  # below what checks messages
        poller = select.poll()
        poller.register(socket, select.POLLOUT)
        for _ in range(count):
            packet = b"".join(self._mutant(samples))
            flag = self._random.choice([b"\x01"] * 8 + [b"\x00", b"\x07"])
            poller.poll()
            socket.send((flag + packet)[:60000])
        poller.poll()
        socket.send(b"\x01")  # ends what was left open

    def _mutant(self, samples):
        chance = self._random
        if chance.random() < 0.25 or not samples:
            return [chance.randbytes(chance.randint(0, 300)) for _ in range(chance.randint(1, 4))]
        frames = [bytearray(frame) for frame in chance.choice(samples)]
        for _ in range(chance.randint(1, 4)):
            frame = chance.choice(frames)
            if frame:
                frame[chance.randrange(len(frame))] = chance.randrange(256)
        if chance.random() < 0.2:
            frames.append(bytearray(b"more"))
        if chance.random() < 0.2:
            del frames[-1][chance.randrange(len(frames[-1]) + 1) :]
        return [bytes(frame) for frame in frames]
