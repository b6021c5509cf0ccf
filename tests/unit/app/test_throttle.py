"""The brake on guessing passwords."""

from __future__ import annotations

from app.throttle import LoginThrottle


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(clock: Clock, **options: int) -> LoginThrottle:
    return LoginThrottle(max_failures=3, window_s=60, clock=clock, **options)


def test_a_name_is_blocked_after_the_last_allowed_failure() -> None:
    throttle = make(Clock())
    for _ in range(3):
        assert throttle.blocked_for("ada") == 0
        throttle.record_failure("ada")
    assert throttle.blocked_for("ada") == 60
    assert throttle.blocked_for("bob") == 0


def test_the_block_ends_when_the_oldest_failure_is_old() -> None:
    clock = Clock()
    throttle = make(clock)
    for _ in range(3):
        throttle.record_failure("ada")
        clock.now += 10
    assert throttle.blocked_for("ada") == 30
    clock.now += 31
    assert throttle.blocked_for("ada") == 0


def test_a_good_sign_in_starts_the_count_again() -> None:
    throttle = make(Clock())
    for _ in range(3):
        throttle.record_failure("ada")
    throttle.forget("ada")
    assert throttle.blocked_for("ada") == 0


def test_memory_stays_bounded_whoever_guesses() -> None:
    throttle = make(Clock(), max_names=2)
    for name in ("ada", "ada", "ada", "bob", "cleo"):
        throttle.record_failure(name)
    # The name that was quiet longest is forgotten.
    assert throttle.blocked_for("ada") == 0
    assert throttle.blocked_for("cleo") == 0
