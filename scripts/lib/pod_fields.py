#!/usr/bin/env python3
"""The fields of a pod template, from an API server's own OpenAPI: crds/core_v1/pod_fields.json, by which unknown ones are warned of.

    kubectl get --raw /openapi/v3/api/v1 | python3 scripts/lib/pod_fields.py > crds/core_v1/pod_fields.json

Each type is a line: its fields, and the type that each leads to, directly, through a list or a map; "" for none.
"""

import json
import sys

ROOT = "io.k8s.api.core.v1.PodTemplateSpec"


def type_of(schema):
    """The name of the type that a field leads to; None where it is text, a number or free."""
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[-1]
    for inner in schema.get("allOf", []):
        return type_of(inner)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            return type_of(schema[key])
    return None


def fields(schemas):
    """Type by type what can be reached from a pod template, in the order of the names."""
    found, waiting = {}, [ROOT]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = {}
        for field, schema in schemas[name]["properties"].items():
            inner = type_of(schema)
            known = inner is not None and "properties" in schemas[inner]
            found[name][field] = inner if known else None
            waiting += [inner] if known else []
    return found


def text(openapi):
    found = fields(openapi["components"]["schemas"])
    short = {name: name.rsplit(".", 1)[-1] for name in found}
    if len(set(short.values())) != len(short):
        raise ValueError("two types of a pod template have the same name without their package")
    lines = ['"%s": %s' % (short[name], json.dumps({field: short.get(inner, "") for field, inner in sorted(found[name].items())}))
             for name in sorted(found, key=lambda name: short[name])]
    return '{"kubernetes": %s, "types": {\n%s\n}}\n' % (json.dumps(openapi["info"]["version"]), ",\n".join(lines))


if __name__ == "__main__":
    sys.stdout.write(text(json.load(sys.stdin)))
