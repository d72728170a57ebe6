"""Work on many Java objects within Spark's driver, as each call from here takes a tenth of a millisecond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def results(jvm: Any, objects: Any, owner: Any, method: str, result: Any) -> Any:
    """Call a method without arguments of each object of a Java list, and return what they give as one.

    Args:
        jvm: The Java that py4j reaches.
        objects: The list.
        owner: The class that has the method, as py4j names it.
        method: Its name.
        result: The class that the method returns, as Java's ``Class``.
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
    """Return what each object of a Java list is as a string; none may have the character of code 0."""
    strings = jvm.java.lang.String
    found = results(jvm, objects, owner, "toString", strings._java_lang_class)
    return str(strings.join("\0", found)).split("\0") if len(found) else []


def numbers(jvm: Any, objects: Any, owner: Any, method: str) -> Sequence[int]:
    """Return the long that a method of each object of a Java list gives."""
    found = results(jvm, objects, owner, method, jvm.java.lang.Long.TYPE)
    return [int(number) for number in str(found.toString()).strip("[]").split(", ")] if len(found) else []


def classes(spark_context: Any, *kinds: Any) -> Any:
    """Return an array of Java classes, which py4j doesn't make of a list."""
    return array(spark_context, "Class", kinds)


def array(spark_context: Any, kind: str, objects: Sequence[Any]) -> Any:
    """Return a Java array of a class of ``java.lang``."""
    gateway = spark_context._gateway
    found = gateway.new_array(getattr(gateway.jvm.java.lang, kind), len(objects))
    for at, one in enumerate(objects):
        found[at] = one
    return found
