"""Lines of a file, with the comments of another put where they stood among the same values."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from minicaffe.core.config.tree import Comment, Mark, Node

WIDTH = 88


class Pen:
    """Writes lines; before each, the comments that stood before what it says."""

    def __init__(self, comments: Mapping[str, Sequence[Comment]]):
        self.lines: list[str] = []
        self.places = {
            file: [(one.line, one.column) for one in some] for file, some in comments.items()
        }
        self.waiting = {file: list(reversed(some)) for file, some in comments.items()}
        self.fresh = False  # whether the last line may take a comment behind it

    def line(self, text: str, mark: Mark, indent: int) -> None:
        """Write a line that says what stood at a mark."""
        self.comments(mark, indent)
        self.lines.append(" " * indent + text)
        self.fresh = True

    def blank(self, mark: Mark) -> None:
        """Write an empty line, if none is there, before what says what stood at a mark."""
        mark = mark.outermost
        waiting = self.waiting.get(mark.file, [])
        if self.fresh and waiting and not waiting[-1].alone and waiting[-1].line < mark.line:
            self.comment(waiting.pop(), 0)
        if self.lines and self.lines[-1]:
            self.lines.append("")
            self.fresh = False

    def comments(self, mark: Mark, indent: int) -> None:
        """Write the comments that stood before a mark."""
        mark = mark.outermost
        waiting = self.waiting.get(mark.file, [])
        while waiting and (waiting[-1].line, waiting[-1].column) < (mark.line, mark.column):
            self.comment(waiting.pop(), indent)

    def comment(self, comment: Comment, indent: int) -> None:
        """Write a comment: behind the last line where it stood so, else on one of its own."""
        text = f"# {comment.text}".rstrip()
        if not comment.alone and self.fresh:
            self.lines[-1] += f"  {text}"
        else:
            self.lines.append(" " * indent + text)
        self.fresh = False

    def text(self) -> str:
        """All that was written, and what comments are left."""
        for waiting in self.waiting.values():
            while waiting:
                self.comment(waiting.pop(), 0)
        return "\n".join([*self.lines, ""])

    def has_comments_in(self, node: Node) -> bool:
        """Whether a comment stands among the values of a node."""
        first, last = node.mark.outermost, last_mark(node)
        places = self.places.get(first.file, [])
        at = bisect.bisect_left(places, (first.line, first.column))
        return at < len(places) and places[at] < (last.line, last.column)


def last_mark(node: Node) -> Mark:
    """The mark of the value that stands last."""
    inside = node.value.values() if isinstance(node.value, dict) else node.value
    marks = [node.mark.outermost]
    if isinstance(node.value, (dict, list)):
        marks += [last_mark(one) for one in inside]
    return max(marks, key=lambda mark: (mark.line, mark.column))
