"""What to write in a prompt template in place of what is refused, in the words of that template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from jinja2 import nodes

# Longer names than a placeholder may have are no advice.
MAX_NAME_LENGTH: Final = 64

_ANYTHING: Final = "name"
_NO_MACRO: Final = "macros are not allowed; write the text where it is wanted"
_NO_PARTS: Final = "other templates cannot be put in; write their text here"


def advise(node: nodes.Node, otherwise: str) -> str:
    """Why the node is refused and what to write; `otherwise` where there is nothing better."""
    for kind, explain in _EXPLAIN.items():
        if isinstance(node, kind):
            return explain(node)
    return otherwise


def advise_tag(tag: str) -> str | None:
    """The same for a `{% tag %}` that could not be read to its end; None where we know none."""
    return _TAGS.get(tag)


def first_name(node: nodes.Node) -> str | None:
    """The first name in a node, in reading order as far as Jinja keeps it."""
    found = node if isinstance(node, nodes.Name) else node.find(nodes.Name)
    return found.name[:MAX_NAME_LENGTH] if found else None


def _loop(node: Any) -> str:
    return _no_loop(first_name(node.target) or _ANYTHING)


def _no_loop(name: str) -> str:
    return (
        f"loops are not allowed; write {{{{ {name} }}}} alone and give it one value per line,"
        " each makes a variant"
    )


def _assignment(node: Any) -> str:
    name = first_name(node.target) or _ANYTHING
    return f"{{% set %}} is not allowed; write {{{{ {name} }}}} and give its text as a value"


def _attribute(node: Any) -> str:
    return (
        f"a dot is not allowed; write one name, such as {{{{ {_joined(node.node, node.attr)} }}}}"
    )


def _item(node: Any) -> str:
    key = node.arg.value if isinstance(node.arg, nodes.Const) else None
    name = _joined(node.node, key if isinstance(key, str) else None)
    return f"square brackets are not allowed; write one name, such as {{{{ {name} }}}}"


def _call(node: Any) -> str:
    name = first_name(node.node) or _ANYTHING
    return f"calls are not allowed; write {{{{ {name} }}}}, without parentheses"


def _concatenation(node: Any) -> str:
    names = [item.name for item in node.nodes if isinstance(item, nodes.Name)]
    beside = "".join(f"{{{{ {name} }}}}" for name in names) if len(names) == len(node.nodes) else ""
    way_out = f", as in {beside}" if beside and len(names) <= 3 else ""
    return f"~ is not allowed; write the placeholders beside each other{way_out}"


def _inline_if(node: Any) -> str:
    test, text = first_name(node.test) or "a", first_name(node.expr1) or "a"
    return (
        f"an inline if is not allowed; write {{% if {test} %}}{{{{ {text} }}}}{{% else %}}…"
        "{% endif %}"
    )


def _test(node: Any) -> str:
    name = first_name(node.node) or _ANYTHING
    return f"tests are not allowed; {{% if {name} %}} asks whether there is a value"


def _subtraction(node: Any) -> str:
    left, right = node.left, node.right
    if isinstance(left, nodes.Name) and isinstance(right, nodes.Name):
        name = _joined(left, right.name)
        return f"a name has _ instead of a hyphen; write {{{{ {name} }}}}"
    return _arithmetic(node)


def _arithmetic(node: Any) -> str:
    name = first_name(node)
    if name is None:
        return "nothing is worked out here; write the result itself"
    return f"nothing is worked out here; write {{{{ {name} }}}} alone and give it finished values"


def _condition(node: Any) -> str:
    name = first_name(node) or _ANYTHING
    return f"conditions are not allowed here; write {{% if {name} %}}…{{% endif %}} around the text"


def _joined(node: nodes.Node, more: str | None) -> str:
    """One name for `a.b`: a_b."""
    name = first_name(node) or "city"
    joined = f"{name}_{more}" if more and more.isidentifier() else f"{name}_name"
    return joined if len(joined) <= MAX_NAME_LENGTH else name


_EXPLAIN: Final[dict[type[nodes.Node], Callable[[Any], str]]] = {
    nodes.For: _loop,
    nodes.Assign: _assignment,
    nodes.AssignBlock: _assignment,
    nodes.Macro: lambda _: _NO_MACRO,
    nodes.CallBlock: lambda _: _NO_MACRO,
    nodes.FilterBlock: lambda _: (
        "{% filter %} is not allowed; write {{ name|upper }} at each placeholder"
    ),
    nodes.Include: lambda _: _NO_PARTS,
    nodes.Import: lambda _: _NO_PARTS,
    nodes.FromImport: lambda _: _NO_PARTS,
    nodes.Extends: lambda _: _NO_PARTS,
    nodes.Getattr: _attribute,
    nodes.Getitem: _item,
    nodes.Call: _call,
    nodes.Concat: _concatenation,
    nodes.CondExpr: _inline_if,
    nodes.Test: _test,
    nodes.Sub: _subtraction,
    nodes.Compare: _condition,
    nodes.And: _condition,
    nodes.Or: _condition,
    nodes.Not: _condition,
    # After those that are a kind of them and have more to say.
    nodes.BinExpr: _arithmetic,
    nodes.UnaryExpr: _arithmetic,
}
_TAGS: Final = {
    "for": _no_loop(_ANYTHING),
    "endfor": _no_loop(_ANYTHING),
    "set": "{% set %} is not allowed; write {{ name }} and give its text as a value",
    "macro": _NO_MACRO,
    "call": _NO_MACRO,
    "include": _NO_PARTS,
    "import": _NO_PARTS,
    "extends": _NO_PARTS,
}
