"""What one broker of a replica group does for all: begun and ended together, in the order in which it was given."""

from cometmq.broker.periodic import Rounds
from cometmq.broker.replicas.leader_tasks import LeaderTasks
from cometmq.clock import ManualClock


class Noted(Rounds):
    def __init__(self, name: str, notes: list[str]) -> None:
        super().__init__(ManualClock())
        self._name = name
        self._notes = notes
        self.looks = 1

    def _note(self, act: str) -> None:
        self._notes.append(f"{act} {self._name}")

    def open(self) -> None:
        self._note("open")

    def start(self) -> None:
        self._note("start")

    def pause(self) -> None:
        self._note("pause")

    def resume(self) -> None:
        self._note("resume")

    def finish(self) -> None:
        self._note("finish")

    @property
    def is_writing(self) -> bool:
        self.looks -= 1
        return self.looks >= 0

    def close(self) -> None:
        self._note("close")


async def test_rounds_begin_and_end_together_and_can_begin_again() -> None:
    notes: list[str] = []

    async def stop_sending() -> None:
        notes.append("stop sending")

    tasks = LeaderTasks(stop_sending)
    tasks.add(Noted("a", notes), Noted("b", notes))
    tasks.resume()  # nobody is at it: nothing
    seen = [tasks.is_on]
    tasks.start()
    seen.append(tasks.is_on)
    tasks.resume()
    await tasks.stop()
    assert [*seen, tasks.is_on] == [False, True, False]
    assert notes == [
        "open a", "open b", "start a", "start b", "resume a", "resume b", "pause a", "pause b", "stop sending",
        "finish a", "finish b", "close a", "close b",
    ]  # fmt: skip
    notes.clear()
    tasks.open()
    tasks.start()
    assert notes == ["open a", "open b", "start a", "start b"]
