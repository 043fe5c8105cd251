"""Requests that are stopped at random moments, a thousand times over, from several threads."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from engine_workshop import Workshop
from paged_chat.engine import SamplingParams
from patience import PATIENCE_S
from slot_runner import reply_to

NUM_ABORTS, NUM_THREADS = 1000, 4


def test_a_thousand_aborts_leave_no_block_held_and_no_reply_wrong():
    workshop = Workshop()
    engine = workshop.make()
    faults: list[object] = []

    def one_person(seed: int) -> int:
        chance, num_aborted = random.Random(seed), 0
        while num_aborted < NUM_ABORTS // NUM_THREADS:
            prompt = [chance.randrange(2)] * chance.randint(1, 40)
            params = SamplingParams(max_tokens=chance.randint(1, 12), n=chance.choice((1, 1, 3)))
            said: list[list[int]] = [[] for _ in range(params.n)]
            ends: list[str] = []
            ended = threading.Event()

            def listen(delta, said=said, ends=ends, ended=ended):
                said[delta.sample] += delta.token_ids
                ends.extend([delta.finish_reason] if delta.finish_reason else [])
                if len(ends) == len(said):
                    ended.set()

            request_id = engine.submit(prompt, params, listen).result(PATIENCE_S)
            time.sleep(chance.choice((0, 0, 0.001, 0.003)))
            engine.abort(request_id).result(PATIENCE_S)
            if not ended.wait(PATIENCE_S):
                faults.append((prompt, "never ended"))
                return num_aborted
            num_aborted += "abort" in ends
            whole = list(reply_to(prompt, params.max_tokens or 0))
            faults.extend((prompt, ids) for ids in said if ids != whole[: len(ids)])
        return num_aborted

    try:
        with ThreadPoolExecutor(NUM_THREADS) as people:
            assert sum(people.map(one_person, range(NUM_THREADS))) == NUM_ABORTS
        assert faults == []
        snapshot = engine.call(lambda own: own.snapshot()).result(PATIENCE_S)
        assert (snapshot.num_referenced, snapshot.num_running, snapshot.num_waiting) == (0, 0, 0)
        assert snapshot.num_free + snapshot.num_cached == snapshot.num_blocks - 1
        engine.call(lambda own: own.check_integrity()).result(PATIENCE_S)
    finally:
        workshop.close()
