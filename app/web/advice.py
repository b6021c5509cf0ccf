"""What can be done about a render that failed, by the code of its error."""

from __future__ import annotations

from typing import Final

_CHANGE: Final = (
    "Trying again will not help: change the values or settings of the campaign and launch a new "
    "batch."
)
ADVICE: Final = {
    "invalid_request": _CHANGE,
    "unsupported_task": _CHANGE,
    "unknown_model": _CHANGE,
    "out_of_memory": "Choose a smaller format or a shorter length, or use a worker with more "
    "memory; then try again.",
    "checkpoint_error": "The model’s files cannot be read on the worker. Whoever runs Adloom here "
    "can check them with “adloom doctor”; then try again.",
    "disk_full": "Free some space on the worker or in the store, then try again.",
    "worker_lost": "Try again: if the same variants end so once more, a worker lacks memory.",
    "deadline_exceeded": "Try again, or choose a smaller format or fewer steps.",
}
_OTHERWISE: Final = (
    "Often this passes: try the failed ones again. If it comes back, show the message to whoever "
    "runs Adloom here."
)


def advice_for(code: str) -> str:
    """One or two sentences on the way out."""
    return ADVICE.get(code, _OTHERWISE)
