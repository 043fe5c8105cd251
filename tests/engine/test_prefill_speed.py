"""What a prompt is expected to take, from what earlier steps took."""

import pytest

from paged_chat.engine.prefill_speed import PrefillSpeed, Work, num_attended


def work(num_new: int, num_before: int = 0, num_steps: int = 1) -> Work:
    return Work(num_steps, num_new, num_attended(num_before, num_new))


def law(done: Work) -> float:
    """A machine that takes 5 ms for a step, 0.2 ms for a token, and 100 ns for each pair."""
    return 0.005 * done.num_steps + 0.0002 * done.num_tokens + 1e-7 * done.num_attended


def measured(*works: Work) -> PrefillSpeed:
    speed = PrefillSpeed()
    for done in works:
        speed.add(done, law(done), is_done=True)
    return speed


def seconds(speed: PrefillSpeed, asked: Work) -> float:
    expected = speed.expect(asked)
    assert expected is not None
    return expected.seconds


def test_each_token_sees_itself_and_all_before_it() -> None:
    assert num_attended(0, 1) == 1
    assert num_attended(0, 4) == 1 + 2 + 3 + 4
    assert num_attended(100, 3) == 101 + 102 + 103
    assert num_attended(7, 0) == 0


@pytest.mark.parametrize("asked", [work(100), work(300, 2000), work(5000, 0, 3), work(50), work(1000, 7000)])
def test_a_machine_that_keeps_to_a_law_is_understood_exactly(asked: Work) -> None:
    speed = measured(work(40), work(100), work(128, 1000), work(400), work(900, 3000), work(2048, 2048), work(1500))
    expected = speed.expect(asked)
    assert expected is not None
    assert expected.seconds == pytest.approx(law(asked), rel=1e-6)
    assert expected.error_s == pytest.approx(0, abs=1e-6)


def test_nothing_is_said_before_three_prompts_of_nearly_that_size() -> None:
    speed = measured(work(100), work(120))
    assert speed.expect(work(100)) is None
    speed.add(work(90), law(work(90)), is_done=True)
    assert speed.expect(work(100)) is not None
    assert speed.expect(work(30)) is not None
    assert speed.expect(work(20)) is None  # a fourth of the smallest but one
    assert speed.expect(work(400)) is None
    assert speed.expect(work(1)) is None


def test_steps_of_single_tokens_say_nothing_of_a_prompt_and_dont_drive_it_out() -> None:
    speed = measured(*[work(1, 50)] * 1000)
    assert speed.expect(work(100)) is None
    assert seconds(speed, work(1, 50)) == pytest.approx(law(work(1, 50)))
    speed = measured(work(100), work(200), work(150), *[work(1, 50)] * 1000)
    assert seconds(speed, work(120)) == pytest.approx(law(work(120)), rel=0.01)


def test_a_step_that_something_else_held_up_is_left_out() -> None:
    speed = measured(work(40), work(100), work(128, 1000), work(400), work(900, 3000))
    speed.add(work(200), 30 * law(work(200)), is_done=True)
    assert seconds(speed, work(200)) == pytest.approx(law(work(200)), rel=1e-6)


def test_what_was_measured_lately_counts() -> None:
    """A machine that has become twice as slow: eight prompts later the old figures are gone."""
    speed = measured(*[work(100 + number) for number in range(8)])
    for number in range(8):
        speed.add(work(100 + number), 2 * law(work(100 + number)), is_done=True)
    assert seconds(speed, work(104)) == pytest.approx(2 * law(work(104)), rel=1e-3)


def test_the_usual_error_is_told() -> None:
    speed = PrefillSpeed()
    for factor in (0.9, 1.1, 0.9, 1.1):
        speed.add(work(100), factor * law(work(100)), is_done=True)
    expected = speed.expect(work(100))
    assert expected is not None
    assert expected.seconds == pytest.approx(law(work(100)), rel=0.02)
    assert expected.error_s / expected.seconds == pytest.approx(0.1483, rel=0.15)


def test_measurements_that_say_anything_say_nothing() -> None:
    speed = PrefillSpeed()
    for factor in (1, 9, 1, 9, 1, 9):
        speed.add(work(100), factor * 0.01, is_done=True)
    assert speed.expect(work(100)) is None


def test_steps_that_nobody_waited_for_count_with_the_next_that_is() -> None:
    """As on a GPU: a long prompt's chunks are begun at once, and their time shows in the last one."""
    speed = PrefillSpeed()
    for _ in range(3):
        chunks = [work(2048), work(2048, 2048), work(904, 4096)]
        whole = law(chunks[0]) + law(chunks[1]) + law(chunks[2])
        speed.add(chunks[0], 0.0001, is_done=False)
        speed.add(chunks[1], 0.0001, is_done=False)
        speed.add(chunks[2], whole - 0.0002, is_done=True)
    assert seconds(speed, work(5000, 0, 3)) == pytest.approx(law(work(5000, 0, 3)), rel=1e-6)


def test_a_step_that_failed_leaves_no_trace() -> None:
    speed = measured(work(100), work(100), work(100))
    speed.add(work(2048), 0.0001, is_done=False)
    speed.forget_pending()
    speed.add(work(100), law(work(100)), is_done=True)
    assert speed.expect(work(2048)) is None
    assert seconds(speed, work(100)) == pytest.approx(law(work(100)))
