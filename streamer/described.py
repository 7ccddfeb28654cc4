"""The base of pydantic models whose keys are described by the text below them, for the JSON Schema that editors use.

pydantic can do that itself (``use_attribute_docstrings``), but then reads the source of every imported model, which takes a
fifth of the daemon's start. Here the source is read when the schema is made.
"""

import ast
import inspect
import textwrap
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue


class Described(BaseModel):
    """A model whose JSON Schema has the text below a key as its description."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema)
        properties = handler.resolve_ref_schema(found).get("properties", {})
        texts: dict[str, str] = {}
        for model in reversed(cls.__mro__):
            if issubclass(model, Described):
                texts |= _texts(model)
        for name, field in cls.model_fields.items():
            about = properties.get(field.alias or name)
            if about is not None and name in texts:
                about.setdefault("description", texts[name])
        return found


def _texts(model: type) -> dict[str, str]:
    """Return the texts in the source of a class, by the name of the attribute above each; empty without a source."""
    try:
        source = inspect.getsource(model)
    except (OSError, TypeError):  # TypeError: its module has no file
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for above, below in zip(definition.body, definition.body[1:], strict=False):
        if not (isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            texts[above.target.id] = inspect.cleandoc(below.value.value)
    return texts
