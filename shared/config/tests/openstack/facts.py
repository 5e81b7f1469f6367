"""What PyYAML and a few lines of Python find in OpenStack's configuration, to judge the loader by something else.

    python3 facts.py count DATA    stanzas of each file, and the names that are defined, as JSON; the test runs this
    python3 facts.py lists DATA    job lists of ten projects in check and gate, as JSON; kept as job-lists.json

DATA is the directory `real-config/openstack`. To make the kept file anew: python3 facts.py lists DATA > job-lists.json
"""
import json
import pathlib
import re
import sys

import yaml

# In the order in which the tenant lists them.
REPOSITORIES = ["project-config", "openstack-zuul-jobs"]
PROJECTS = [
    "openstack/openstack-zuul-jobs",
    "openstack/project-config",
    "openstack/nova",
    "openstack/requirements",
    "openstack/governance",
    "openstack/oslo.config",
    "x/nova-dpm",
    "x/ooi",
    "x/swift3",
    "x/valence",
]


class Loader(yaml.SafeLoader):
    """Takes any tag for the value behind it."""


def plain(loader, _suffix, node):
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


Loader.add_multi_constructor("!", plain)


def stanzas(data):
    for repository in REPOSITORIES:
        root = pathlib.Path(data, repository)
        for path in sorted(root.glob("zuul.d/**/*.yaml")):
            with open(path, encoding="utf-8") as file:
                yield repository, str(path.relative_to(root)), yaml.load(file, Loader) or []


def count(data):
    counts, names = {}, {}
    for repository, path, found in stanzas(data):
        counts[f"{repository}/{path}"] = len(found)
        for stanza in found:
            for kind, body in stanza.items():
                names.setdefault(kind, set()).add(str((body or {}).get("name", "")))
    names = {kind: sorted(found) for kind, found in names.items()}
    return {"stanzas": counts, "names": names, "absent-projects": absent_projects(data)}


def members(value):
    return value if isinstance(value, list) else [] if value is None else [value]


def key(value):
    """The name of what is a name, or a mapping of a name to more."""
    return value if isinstance(value, str) else next(iter(value))


def tenant_projects(data):
    """Short and canonical names of the projects that the tenant lists, singly and in groups."""
    hosts = {
        "gerrit": "opendev.org",
        "github": "github.com",
        "googlesource": "gerrit.googlesource.com",
        "opendaylight": "git.opendaylight.org",
        "gitlab": "gitlab.com",
    }
    with open(pathlib.Path(data, "project-config/zuul/main.yaml"), encoding="utf-8") as file:
        main = yaml.load(file, Loader)
    tenant = next(one["tenant"] for one in main if one.get("tenant", {}).get("name") == "openstack")
    names = set()
    for connection, lists in tenant["source"].items():
        for member in [one for found in lists.values() for one in found]:
            group = member["projects"] if isinstance(member, dict) and "projects" in member else [member]
            for name in map(key, group):
                names |= {name, f"{hosts[connection]}/{name}"}
    return names


def named_projects(data):
    """Every name of a project that a stanza, or an entry of a job list, asks for."""

    def of_job(job):
        for attribute in ("required-projects", "allowed-projects", "include-projects", "exclude-projects"):
            for one in members(job.get(attribute)):
                yield one if isinstance(one, str) else one["name"]
        for one in members(job.get("roles")):
            if "zuul" in one:
                yield one["zuul"]
        for one in members(job.get("include-vars")):
            if isinstance(one, dict) and "project" in one:
                yield one["project"]

    for _, _, found in stanzas(data):
        for stanza in found:
            kind, body = next(iter(stanza.items()))
            if kind == "job":
                yield from of_job(body)
            if kind in ("project", "project-template"):
                if kind == "project" and not body.get("name", "^").startswith("^"):
                    yield body["name"]
                for pipeline in body.values():
                    for job in pipeline.get("jobs", []) if isinstance(pipeline, dict) else []:
                        if isinstance(job, dict):
                            yield from of_job(next(iter(job.values())) or {})


def absent_projects(data):
    return sorted(set(named_projects(data)) - tenant_projects(data))


def listed(jobs):
    for job in jobs or []:
        yield job if isinstance(job, str) else next(iter(job))


def lists(data):
    templates, projects = {}, []
    for repository, _, found in stanzas(data):
        for stanza in found:
            if "project-template" in stanza:
                templates.setdefault(stanza["project-template"]["name"], []).append(stanza["project-template"])
            if "project" in stanza:
                projects.append({"name": f"openstack/{repository}", **stanza["project"]})

    def is_about(name, project):
        if name.startswith("^"):
            return re.match(name, project) or re.match(name, "opendev.org/" + project)
        return name in (project, "opendev.org/" + project)

    result = {}
    for project in PROJECTS:
        result[project] = {}
        for pipeline in ["check", "gate"]:
            order = []
            for stanza in projects:
                if not is_about(stanza["name"], project):
                    continue
                bodies = [body for name in stanza.get("templates", []) for body in templates.get(name, [])]
                for body in [*bodies, stanza]:
                    order += [job for job in listed((body.get(pipeline) or {}).get("jobs")) if job not in order]
            result[project][pipeline] = order
    return result


if __name__ == "__main__":
    json.dump({"count": count, "lists": lists}[sys.argv[1]](sys.argv[2]), sys.stdout, indent=1)
    print()
