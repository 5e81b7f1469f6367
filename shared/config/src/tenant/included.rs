//! Files that tenants include (Z2.5): they lie beside the main configuration, are trusted, and are
//! together one config project, `system/included`, with a key pair of its own.
//!
//! No forge knows that project, and no repository may have its name: its files are stored with the
//! main configuration. What lies beside that in `playbooks/` and `roles/` is a commit of its own
//! ([`TenantConfig::beside`]). The files are no part of it: a job without `run` looks for its
//! playbook at a repository's root too, and `base.yaml`, which defines the job `base`, is none.

use super::{SYSTEM, TenantConfig, span_of_text};
use crate::ConfigError;
use crate::error::{Diagnostic, DiagnosticKind};
use crate::fragment::{Fragment, Source, SourceFile};
use crate::objects::read::{Diagnostics, Fields, members, text};
use crate::objects::{Span, Stanza};
use crate::yaml::{self, Mark, Node};
use sluice_model::ProjectName;
use sluice_model::git::BranchKey;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The short name of the project that included files are together.
const INCLUDED: &str = "included";
/// The branch of that project.
const BRANCH: &str = "main";

/// Returns the canonical name of the project that included files are together, in every tenant.
pub fn included_project() -> ProjectName {
    ProjectName::new(SYSTEM, INCLUDED)
}

/// Returns the one branch that that project has.
pub fn included_branch() -> BranchKey {
    BranchKey { project: included_project(), branch: BRANCH.into() }
}

impl TenantConfig {
    /// Returns where an included file comes from.
    pub fn included_source(&self, path: &str) -> Option<Source> {
        self.included.as_ref().map(|included| Source {
            connection: included.connection.clone(),
            project: included.name.clone(),
            branch: BRANCH.into(),
            path: path.to_owned(),
            trust: included.trust,
        })
    }

    /// Returns the files that the tenant includes, in its order, each as `parse` makes it. `stored`
    /// are the files that lie beside the main configuration, by the names they are included by.
    /// What is missing there is a mistake of the main configuration, at the place where it names
    /// the file: `path` and `main` are its own name and text.
    pub fn included_fragments(
        &self,
        (path, main): (&str, &str),
        stored: &BTreeMap<String, String>,
        parse: impl Fn(&SourceFile) -> Arc<Fragment>,
    ) -> Vec<Arc<Fragment>> {
        let (mut fragments, mut missing) = (Vec::new(), Vec::new());
        for name in &self.include {
            match (self.included_source(name), stored.get(name)) {
                (Some(source), Some(text)) => {
                    fragments.push(parse(&SourceFile { source, text: text.clone() }))
                }
                _ => missing.push(self.missing(name, main)),
            }
        }
        let told = self.included_source(path).filter(|_| !missing.is_empty());
        fragments.extend(told.map(|source| Arc::new(Fragment::telling(source, missing))));
        fragments
    }

    /// Returns what is told of a file that is not there.
    fn missing(&self, name: &str, main: &str) -> Diagnostic {
        let message = format!(
            "The tenant includes \"{name}\", and there is no such file beside the main configuration: put it there and store both with `sluice tenant load`"
        );
        let start = Span { start: Mark(1, 1), end: Mark(1, 1) };
        let stanza =
            yaml::compose(main).ok().and_then(|root| stanza_of(&root, self.name.as_str()).cloned());
        let span = stanza.as_ref().map_or(start, |stanza| span_of_text(stanza, "include", name));
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, message)
                .about("include");
        let diagnostic = diagnostic.in_stanza(&format!("tenant {}", self.name));
        match stanza {
            Some(stanza) => diagnostic.from_stanza_at(stanza.start),
            None => diagnostic,
        }
    }
}

/// Returns the objects that nodes are made of which have a name that an earlier file gave another
/// one of their kind. Every tenant knows them by the one project that all these files are (L3.4),
/// so that two would be taken for one although no tenant includes both files. `files` are all that
/// lie beside a main configuration, in any order, each once.
pub fn included_collisions(files: &[Arc<Fragment>]) -> Vec<ConfigError> {
    let mut known: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut found = Vec::new();
    for file in files {
        for stanza in file.stanzas() {
            let (kind, object) = match stanza {
                Stanza::Image(object) => ("image", object),
                Stanza::Flavor(object) => ("flavor", object),
                Stanza::Label(object) => ("label", object),
                Stanza::Section(object) => ("section", object),
                Stanza::Provider(object) => ("provider", object),
                _ => continue,
            };
            let path = file.source.path.as_str();
            let first = *known.entry((kind, object.name.as_str())).or_insert(path);
            if first != path {
                let message = format!(
                    "The {kind} \"{}\" is also defined in {first}: files beside one main configuration are one project to all tenants, so give it another name",
                    object.name
                );
                let diagnostic = Diagnostic::new(
                    DiagnosticKind::Duplicate,
                    object.span.start,
                    object.span.end,
                    message,
                );
                found.push(
                    file.source.error(
                        diagnostic.in_stanza(&format!("{kind} {}", object.name)).about("name"),
                    ),
                );
            }
        }
    }
    found
}

/// Returns the stanza of a tenant; the founding documents also write its attributes beside the bare
/// word.
fn stanza_of<'n>(root: &'n Node, name: &str) -> Option<&'n Node> {
    root.as_list()?.iter().find(|member| {
        let body = member.get("tenant");
        let named = body.filter(|body| !body.is_null()).unwrap_or(member).get("name");
        body.is_some() && named.and_then(Node::as_text) == Some(name)
    })
}

/// Takes the names of the files that a tenant includes: paths from where the main configuration
/// lies, and none out of there.
pub(super) fn files(f: &mut Fields<'_>, p: &mut Diagnostics) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for member in f.take("include").map(members).unwrap_or_default() {
        let Some(path) = text(member, "include", p) else { continue };
        if path.split('/').any(|part| matches!(part, "" | "..")) {
            let message = format!(
                "\"{path}\" does not lie beside the main configuration: include it by its path from there, without \"..\""
            );
            p.syntax(member, "include", message);
        } else if found.contains(&path) {
            p.syntax(member, "include", format!("\"include\" names {path} twice"));
        } else {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragment;
    use crate::layout::{Layout, LayoutSources};
    use crate::{Connections, Driver, parse_main};
    use sluice_model::git::{BranchState, Commit, Oid};

    const MAIN: &str = "
- tenant:
    name: one
    include:
      - global.yaml
      - sub/one.yaml
- tenant:
  name: two
  include: global.yaml
";

    fn tenants(main: &str) -> (Vec<TenantConfig>, Vec<String>) {
        let connections = Connections::new().with("github", Driver::GitHub, "github.com");
        let (config, errors) = parse_main("main.yaml", main, &connections);
        (config.tenants, errors.iter().map(ToString::to_string).collect())
    }

    fn layout(tenant: &TenantConfig, files: &[(&str, &str)]) -> Layout {
        let stored =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let parse = |file: &SourceFile| Arc::new(fragment::parse(file));
        let fragments = tenant.included_fragments(("main.yaml", MAIN), &stored, parse);
        let (tenant, connections, branches) = (tenant.clone(), Connections::new(), BTreeMap::new());
        Layout::build(LayoutSources { tenant, connections, branches, fragments })
    }

    /// Z2.1, Z2.5: a file belongs to every tenant that includes it, as part of one config project;
    /// files count in the order in which they are included, and a mistake is told in its file and
    /// line.
    #[test]
    fn included_files_belong_to_every_tenant_that_names_them() {
        let (tenants, errors) = tenants(MAIN);
        assert_eq!(errors, Vec::<String>::new());
        let global = "- pipeline: {name: check, manager: independent}\n- job: {name: base, parent: null, timeout: 1800}\n";
        let own = "- job: {name: base, timeout: 60}\n- job: {name: own, nodeset: nowhere}\n";
        let files = [("global.yaml", global), ("sub/one.yaml", own)];
        let one = layout(&tenants[0], &files);
        let told: Vec<String> = one.errors().iter().map(ToString::to_string).collect();
        assert!(told.len() == 1 && told[0].starts_with("sub/one.yaml:2: "), "{told:?}");
        assert_eq!(one.job_names().collect::<Vec<_>>(), ["base", "own"]);
        assert_eq!(one.pipelines().len(), 1, "they are trusted with pipelines and base jobs");
        let order: Vec<&str> =
            one.fragments().iter().map(|file| file.source.path.as_str()).collect();
        assert_eq!(order, ["global.yaml", "sub/one.yaml"]);
        let two = layout(&tenants[1], &files);
        assert_eq!((two.errors().len(), two.job_names().collect::<Vec<_>>()), (0, vec!["base"]));
        assert!(two.fragments().iter().all(|file| file.source.project == included_project()));
    }

    /// Z2.5: a file that is not there is a mistake of the main configuration, told where that names
    /// it; the others count, and so it stays in a layout that is stored.
    #[test]
    fn a_missing_file_is_told_where_it_is_included() {
        let (tenants, _) = tenants(MAIN);
        let found = layout(&tenants[0], &[("global.yaml", "- job: {name: base, parent: null}\n")]);
        for layout in [&found, &Layout::from_bytes(&found.to_bytes()).unwrap()] {
            let [error] = layout.errors() else { panic!("{:?}", layout.errors()) };
            assert_eq!((error.path.as_str(), error.diagnostic.start), ("main.yaml", Mark(6, 9)));
            assert!(
                error
                    .diagnostic
                    .message
                    .starts_with("The tenant includes \"sub/one.yaml\", and there is no such file")
            );
            assert_eq!(error.diagnostic.stanza, "tenant one");
            assert_eq!(layout.job_names().collect::<Vec<_>>(), ["base"]);
        }
        let two = layout(&tenants[1], &[]);
        assert_eq!(two.errors()[0].diagnostic.start, Mark(9, 12));
        let mended = layout(&tenants[1], &[("global.yaml", "")]);
        assert!(mended.errors().is_empty() && mended.id() != two.id(), "{:?}", mended.errors());
    }

    /// Z2.5: what lies beside the files is part of the layout: another commit makes another layout,
    /// and one that is stored has it.
    #[test]
    fn what_lies_beside_the_files_is_part_of_the_layout() {
        let (tenants, _) = tenants(MAIN);
        let files = [("global.yaml", "")];
        let with = |digit: &str| {
            let commit = Commit { id: Oid(digit.repeat(40)), tree: Oid("f".repeat(40)) };
            let packs = vec!["git/system%2Fincluded/pack".to_owned()];
            let state = BranchState::untouched(included_branch(), commit, packs);
            layout(&TenantConfig { beside: Some(state), ..tenants[1].clone() }, &files)
        };
        let (without, one, other) = (layout(&tenants[1], &files), with("1"), with("2"));
        assert!(without.id() != one.id() && one.id() != other.id());
        assert_eq!(with("1").id(), one.id());
        assert!(other.changes_since(&one).main_config_changed && !with("1").changes_since(&one).main_config_changed);
        let opened = Layout::from_bytes(&one.to_bytes()).unwrap();
        assert_eq!(opened.tenant().beside, one.tenant().beside);
        assert!(Layout::from_bytes(&without.to_bytes()).unwrap().tenant().beside.is_none());
    }

    /// L3.4, Z2.5: files of two tenants are one project all the same, so that what nodes are made
    /// of has one name in all of them.
    #[test]
    fn no_two_files_give_one_name_to_what_nodes_are_made_of() {
        let (tenants, _) = tenants(MAIN);
        let file = |path: &str, text: &str| {
            let source = tenants[0].included_source(path).unwrap();
            Arc::new(fragment::parse(&SourceFile { source, text: text.to_owned() }))
        };
        let one = file(
            "a.yaml",
            "- label: {name: small}\n- job: {name: base, parent: null}\n- image: {name: i, type: cloud}\n",
        );
        let other = file(
            "b.yaml",
            "- job: {name: base, parent: null}\n- flavor: {name: small}\n- label: {name: small, min-ready: 1}\n",
        );
        let found = included_collisions(&[one, other]);
        let [error] = &found[..] else { panic!("{found:?}") };
        assert_eq!((error.path.as_str(), error.diagnostic.start.line()), ("b.yaml", 3));
        assert!(
            error.diagnostic.message.starts_with("The label \"small\" is also defined in a.yaml"),
            "{error}"
        );
    }

    /// Z2.5, Z5.2: no repository passes for the files that tenants include: neither by its
    /// canonical name, by which commits are told apart, nor by its connection's, by which keys are.
    #[test]
    fn no_repository_has_the_name_of_the_included_files() {
        let connections = Connections::new()
            .with("system", Driver::GitHub, "github.com")
            .with("github", Driver::GitHub, "system")
            .with("other", Driver::GitHub, "");
        let rows = [
            ("system", "included", true),
            ("github", "included", true),
            ("system", "org/included", false),
            ("other", "included", false),
        ];
        for (connection, name, is_refused) in rows {
            for list in ["config-projects", "untrusted-projects"] {
                let main = format!(
                    "- tenant: {{name: one, source: {{{connection}: {{{list}: [{name}]}}}}}}\n"
                );
                let (config, errors) = parse_main("main.yaml", &main, &connections);
                let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
                assert_eq!(
                    (told.len() == 1, config.tenants[0].projects.is_empty()),
                    (is_refused, is_refused),
                    "{told:?}"
                );
                let words = "has the name of the files that tenants include, system/included";
                assert!(told.iter().all(|one| one.contains(words)), "{told:?}");
            }
        }
    }

    /// Z2.3, Z2.5: what is included lies beside the main configuration and nowhere else.
    #[test]
    fn no_path_leads_out_of_where_the_main_configuration_lies() {
        for path in ["/etc/shadow", "../other.yaml", "a/../../b.yaml", "a//b.yaml"] {
            let (found, errors) =
                tenants(&format!("- tenant: {{name: one, include: [{path}, good.yaml]}}\n"));
            let expected = format!("\"{path}\" does not lie beside the main configuration");
            assert!(errors.len() == 1 && errors[0].contains(&expected), "{path}: {errors:?}");
            assert_eq!(found[0].include, ["good.yaml"]);
        }
        let (_, errors) = tenants("- tenant: {name: one, include: [a.yaml, a.yaml]}\n");
        assert!(errors.len() == 1 && errors[0].contains("names a.yaml twice"), "{errors:?}");
    }
}
