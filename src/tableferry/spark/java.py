"""Process lists of Java objects inside Spark's driver; one py4j call per object would take 0.1 ms each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def results(jvm: Any, objects: Any, owner: Any, method: str, result: Any) -> Any:
    """Call a method without arguments on each object of a Java list, and return the results as a Java list.

    Args:
        jvm: The JVM view of py4j.
        objects: The list.
        owner: The class that declares the method, as a py4j ``JavaClass``.
        method: The method's name.
        result: The method's return type, as a Java ``Class``.
    """
    invoke = jvm.java.lang.invoke
    signature = invoke.MethodType.methodType(result)
    handle = invoke.MethodHandles.publicLookup().findVirtual(owner._java_lang_class, method, signature)
    return mapped(jvm, objects, handle)


def mapped(jvm: Any, objects: Any, handle: Any) -> Any:
    """Call a Java method handle of one argument with each object of a Java list."""
    operator = jvm.java.util.function.UnaryOperator._java_lang_class
    found = jvm.java.util.ArrayList(objects)
    found.replaceAll(jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(operator, handle))
    return found


def texts(jvm: Any, objects: Any, owner: Any) -> list[str]:
    """Return ``toString`` of each object of a Java list; no text may contain the character U+0000."""
    strings = jvm.java.lang.String
    found = results(jvm, objects, owner, "toString", strings._java_lang_class)
    return str(strings.join("\0", found)).split("\0") if len(found) else []


def numbers(jvm: Any, objects: Any, owner: Any, method: str) -> Sequence[int]:
    """Return the result of a method that returns a Java ``long``, for each object of a Java list."""
    found = results(jvm, objects, owner, method, jvm.java.lang.Long.TYPE)
    return [int(number) for number in str(found.toString()).strip("[]").split(", ")] if len(found) else []


def classes(spark_context: Any, *kinds: Any) -> Any:
    """Return a Java array of classes, because py4j doesn't convert a Python list to an array."""
    return array(spark_context, "Class", kinds)


def array(spark_context: Any, kind: str, objects: Sequence[Any]) -> Any:
    """Return a Java array of a class of ``java.lang``."""
    gateway = spark_context._gateway
    found = gateway.new_array(getattr(gateway.jvm.java.lang, kind), len(objects))
    for at, one in enumerate(objects):
        found[at] = one
    return found
