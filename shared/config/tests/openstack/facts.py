"""Reads OpenStack's configuration with PyYAML and a few lines of Python, as an independent check of the loader.

    python3 facts.py count DATA    stanzas of each file, and the names that are defined, as JSON; the test runs this
    python3 facts.py lists DATA    job lists of ten projects in check and gate, as JSON; stored as job-lists.json
    python3 facts.py runs DATA     which of them run for changes of some files, as JSON; stored as job-runs.json
    python3 facts.py absent DATA   jobs and nodesets that are named and not defined, as JSON; the test puts bare ones in their place

DATA is the directory `real-config/openstack`. To recreate a stored file: python3 facts.py lists DATA > job-lists.json
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
PIPELINES = ["check", "gate"]
# The branch of the changes, and the one file that each of them touches: one that nothing is said of, and one that many jobs are
# not for, and some are.
BRANCH = "master"
FILES = ["neutral/file.txt", "README.rst"]


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


def bodies(data):
    """The stanzas, and templates before them, that are about each of the ten projects, in order.

    Those that name a project come before those whose expression covers its name, and of these each expression's stand together.
    """
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

    named = [stanza for stanza in projects if not stanza["name"].startswith("^")]
    by_expression = {}
    for stanza in projects:
        if stanza["name"].startswith("^"):
            by_expression.setdefault(stanza["name"], []).append(stanza)
    projects = named + [stanza for found in by_expression.values() for stanza in found]
    result = {}
    for project in PROJECTS:
        result[project] = []
        for stanza in projects:
            if is_about(stanza["name"], project):
                for name in stanza.get("templates", []):
                    result[project] += templates.get(name, [])
                result[project].append(stanza)
    return result


def entries(project_bodies, pipeline):
    for body in project_bodies:
        yield from (body.get(pipeline) or {}).get("jobs") or []


def lists(data):
    def order(found):
        return list(dict.fromkeys(listed(found)))

    return {
        project: {pipeline: order(entries(found, pipeline)) for pipeline in PIPELINES}
        for project, found in bodies(data).items()
    }


def matches(pattern, text):
    regex, negate = (pattern, False) if isinstance(pattern, str) else (pattern["regex"], pattern.get("negate", False))
    # Zuul's expressions may repeat the beginning, which says nothing; Python's may not.
    return bool(re.match(regex.removeprefix("^*"), text)) != negate


def on_branch(body):
    patterns = members(body.get("branches"))
    return not patterns or any(matches(pattern, BRANCH) for pattern in patterns)


def definitions(jobs, name, seen):
    """What applies of a job and of those it inherits from, parents first; None where a job has no definition for the branch."""
    if name not in jobs:
        return []
    found, matched = [], False
    for body in filter(on_branch, jobs[name]):
        parent = body["parent"] if "parent" in body else None if matched else "base"
        matched = True
        if parent and parent not in seen:
            above = definitions(jobs, parent, seen)
            if above is None:
                return None
            found += above
        seen.add(name)
        found.append(body)
    return found if matched else None


def defined_jobs(data):
    jobs = {}
    for _, _, found in stanzas(data):
        for stanza in found:
            if "job" in stanza:
                jobs.setdefault(stanza["job"]["name"], []).append(stanza["job"])
    return jobs


def runs(data):
    jobs = defined_jobs(data)

    def does_run(name, of_project, file):
        applied = definitions(jobs, name, set())
        own = [(one[name] or {}) if isinstance(one, dict) else {} for one in of_project if key(one) == name]
        own = [body for body in own if on_branch(body)]
        if applied is None or not own:
            return False
        wanted, unwanted = None, None
        for body in [*applied, *own]:
            # What a later one says of files it says in place of what was said before.
            wanted = body.get("files", wanted)
            unwanted = body.get("irrelevant-files", unwanted)
        is_wanted = not members(wanted) or any(matches(one, file) for one in members(wanted))
        return is_wanted and not any(matches(one, file) for one in members(unwanted))

    result = {}
    for project, found in bodies(data).items():
        for pipeline in PIPELINES:
            of_project = list(entries(found, pipeline))
            names = dict.fromkeys(listed(of_project))
            by_file = {file: [name for name in names if does_run(name, of_project, file)] for file in FILES}
            result.setdefault(project, {})[pipeline] = by_file
    return result


def absent(data):
    """Names of jobs and nodesets of repositories whose data are not there."""
    jobs, nodesets = defined_jobs(data), set()
    named = {"job": {"base"}, "nodeset": set()}
    every = [body for found in jobs.values() for body in found]
    for _, _, found in stanzas(data):
        for stanza in found:
            kind, body = next(iter(stanza.items()))
            if kind == "nodeset":
                nodesets.add(body["name"])
    for found in bodies(data).values():
        for pipeline in PIPELINES:
            of_project = list(entries(found, pipeline))
            named["job"].update(listed(of_project))
            every += [next(iter(one.values())) or {} for one in of_project if isinstance(one, dict)]
    for body in every:
        named["job"].update(filter(None, [body.get("parent")]))
        named["job"].update(one if isinstance(one, str) else one["name"] for one in members(body.get("dependencies")))
        if isinstance(body.get("nodeset"), str):
            named["nodeset"].add(body["nodeset"])
    return {"job": sorted(named["job"] - set(jobs)), "nodeset": sorted(named["nodeset"] - nodesets)}


if __name__ == "__main__":
    json.dump({"count": count, "lists": lists, "runs": runs, "absent": absent}[sys.argv[1]](sys.argv[2]), sys.stdout, indent=1)
    print()
