//! Files that tenants include (Z2.5). They are stored next to the main configuration, are trusted,
//! and form one config project, `system/included`, with its own key pair.
//!
//! The project exists at no forge, and no repository may have its name. `playbooks/` and `roles/`
//! next to the main configuration form a commit of it ([`TenantConfig::included_content`]). The
//! included files are not part of that commit: a job without `run` also searches its playbook at
//! the root, and `base.yaml`, which defines the job `base`, is no playbook.

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

/// The short name of the project of included files.
const INCLUDED: &str = "included";
/// The branch of that project.
const BRANCH: &str = "main";

/// Returns the canonical name of the project of included files, `system/included`, the same in
/// every tenant.
pub fn included_project() -> ProjectName {
    ProjectName::new(SYSTEM, INCLUDED)
}

/// Returns the only branch of the project of included files.
pub fn included_branch() -> BranchKey {
    BranchKey { project: included_project(), branch: BRANCH.into() }
}

/// The main configuration file that includes other files.
#[derive(Debug, Clone, Copy)]
pub struct MainConfigText<'a> {
    /// Its name, as diagnostics show it.
    pub path: &'a str,
    /// Its text, to find the line that includes a file.
    pub text: &'a str,
}

impl TenantConfig {
    /// Returns the origin of a file with this path in the project of included files; `None` if the
    /// tenant includes no files. Whether it includes this file is not checked.
    pub fn included_source(&self, path: &str) -> Option<Source> {
        self.included.as_ref().map(|included| Source {
            connection: included.connection.clone(),
            project: included.name.clone(),
            branch: BRANCH.into(),
            path: path.to_owned(),
            trust: included.trust,
        })
    }

    /// Returns the files that the tenant includes, in order, each parsed by `parse`. `stored` are
    /// the files next to the main configuration, as text by name. If some are missing there, one
    /// more fragment at the end holds only their errors. `main` is the main configuration itself,
    /// which is not parsed as a file: it only locates these errors where it includes the files.
    pub fn included_fragments(
        &self,
        main: MainConfigText<'_>,
        stored: &BTreeMap<String, String>,
        parse: impl Fn(&SourceFile) -> Arc<Fragment>,
    ) -> Vec<Arc<Fragment>> {
        let (mut fragments, mut missing) = (Vec::new(), Vec::new());
        for name in &self.include {
            match (self.included_source(name), stored.get(name)) {
                (Some(source), Some(text)) => {
                    fragments.push(parse(&SourceFile { source, text: text.clone() }))
                }
                _ => missing.push(self.missing(name, main.text)),
            }
        }
        let reported = self.included_source(main.path).filter(|_| !missing.is_empty());
        fragments
            .extend(reported.map(|source| Arc::new(Fragment::diagnostics_only(source, missing))));
        fragments
    }

    /// Returns the error for an included file that does not exist; whether it exists is not
    /// checked. `main` is the text of the main configuration. The error points to the name in the
    /// tenant's `include` there, otherwise to the tenant's stanza, and to line 1 if that is not
    /// found either.
    fn missing(&self, name: &str, main: &str) -> Diagnostic {
        let message = format!(
            "The tenant includes \"{name}\", but there is no such file next to the main \
             configuration: add it and run `sluice tenant load`"
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

/// Returns an error for each image, flavor, label, section or provider in included files whose name
/// an earlier file of `files` uses for the same kind. `files` are the included files of all
/// tenants; their order only decides which file has the error. Names repeated within one file, and
/// stanzas with errors, are not reported here.
///
/// All tenants know these objects by the one project of all included files (L3.4), so two objects
/// would be confused even if no tenant includes both files. `files` are all included files, in any
/// order.
pub fn included_collisions(files: &[Arc<Fragment>]) -> Vec<ConfigError> {
    let mut first_paths: BTreeMap<(&str, &str), &str> = BTreeMap::new();
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
            let first = *first_paths.entry((kind, object.name.as_str())).or_insert(path);
            if first != path {
                let message = format!(
                    "The {kind} \"{}\" is also defined in {first}: included files form one project \
                     for all tenants, so give it another name",
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

/// Returns the stanza of the tenant `name`, with its keyword, from the document of the main
/// configuration; `None` if there is none or `root` is no list. The tenant's attributes may also be
/// next to the bare keyword.
fn stanza_of<'n>(root: &'n Node, name: &str) -> Option<&'n Node> {
    root.as_list()?.iter().find(|member| {
        let body = member.get("tenant");
        let named = body.filter(|body| !body.is_null()).unwrap_or(member).get("name");
        body.is_some() && named.and_then(Node::as_text) == Some(name)
    })
}

/// Takes the names of the included files: paths relative to the main configuration. A path that is
/// absolute or contains `..` or an empty part, a repeated one, and a value that is no text are
/// errors and left out. Empty if the attribute is absent.
pub(super) fn files(f: &mut Fields<'_>, p: &mut Diagnostics) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for member in f.take("include").map(members).unwrap_or_default() {
        let Some(path) = text(member, "include", p) else { continue };
        if path.split('/').any(|part| matches!(part, "" | "..")) {
            let message = format!(
                "\"{path}\" is not next to the main configuration: include it by its path from \
                 there, without \"..\""
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
        let fragments = tenant.included_fragments(
            MainConfigText { path: "main.yaml", text: MAIN },
            &stored,
            parse,
        );
        let (tenant, connections, branches) = (tenant.clone(), Connections::new(), BTreeMap::new());
        Layout::build(LayoutSources { tenant, connections, branches, fragments })
    }

    /// Z2.1, Z2.5: a file belongs to every tenant that includes it, as part of one config project.
    /// Files apply in the order of inclusion, and an error is reported in its file and line.
    #[test]
    fn included_files_belong_to_every_tenant_that_names_them() {
        let (tenants, errors) = tenants(MAIN);
        assert_eq!(errors, Vec::<String>::new());
        let global = "- pipeline: {name: check, manager: independent}\n- job: {name: base, parent: null, timeout: 1800}\n";
        let own = "- job: {name: base, timeout: 60}\n- job: {name: own, nodeset: nowhere}\n";
        let files = [("global.yaml", global), ("sub/one.yaml", own)];
        let one = layout(&tenants[0], &files);
        let reported: Vec<String> = one.errors().iter().map(ToString::to_string).collect();
        assert!(reported.len() == 1 && reported[0].starts_with("sub/one.yaml:2: "), "{reported:?}");
        assert_eq!(one.job_names().collect::<Vec<_>>(), ["base", "own"]);
        assert_eq!(one.pipelines().len(), 1, "they are trusted with pipelines and base jobs");
        let order: Vec<&str> =
            one.fragments().iter().map(|file| file.source.path.as_str()).collect();
        assert_eq!(order, ["global.yaml", "sub/one.yaml"]);
        let two = layout(&tenants[1], &files);
        assert_eq!((two.errors().len(), two.job_names().collect::<Vec<_>>()), (0, vec!["base"]));
        assert!(two.fragments().iter().all(|file| file.source.project == included_project()));
    }

    /// Z2.5: a missing file is an error in the main configuration where it is included. The others
    /// take effect, also in a stored layout.
    #[test]
    fn a_missing_file_is_reported_where_it_is_included() {
        let (tenants, _) = tenants(MAIN);
        let found = layout(&tenants[0], &[("global.yaml", "- job: {name: base, parent: null}\n")]);
        for layout in [&found, &Layout::from_bytes(&found.to_bytes()).unwrap()] {
            let [error] = layout.errors() else { panic!("{:?}", layout.errors()) };
            assert_eq!((error.path.as_str(), error.diagnostic.start), ("main.yaml", Mark(6, 9)));
            assert!(
                error
                    .diagnostic
                    .message
                    .starts_with("The tenant includes \"sub/one.yaml\", but there is no such file")
            );
            assert_eq!(error.diagnostic.stanza, "tenant one");
            assert_eq!(layout.job_names().collect::<Vec<_>>(), ["base"]);
        }
        let two = layout(&tenants[1], &[]);
        assert_eq!(two.errors()[0].diagnostic.start, Mark(9, 12));
        let fixed = layout(&tenants[1], &[("global.yaml", "")]);
        assert!(fixed.errors().is_empty() && fixed.id() != two.id(), "{:?}", fixed.errors());
    }

    /// Z2.5: the content next to the files is part of the layout, also when it is stored.
    #[test]
    fn content_next_to_the_included_files_is_part_of_the_layout() {
        let (tenants, _) = tenants(MAIN);
        let files = [("global.yaml", "")];
        let with = |digit: &str| {
            let commit = Commit { id: Oid(digit.repeat(40)), tree: Oid("f".repeat(40)) };
            let packs = vec!["git/system%2Fincluded/pack".to_owned()];
            let state = BranchState::untouched(included_branch(), commit, packs);
            layout(&TenantConfig { included_content: Some(state), ..tenants[1].clone() }, &files)
        };
        let (without, one, other) = (layout(&tenants[1], &files), with("1"), with("2"));
        assert!(without.id() != one.id() && one.id() != other.id());
        assert_eq!(with("1").id(), one.id());
        assert!(
            other.changes_since(&one).main_config_changed
                && !with("1").changes_since(&one).main_config_changed
        );
        let opened = Layout::from_bytes(&one.to_bytes()).unwrap();
        assert_eq!(opened.tenant().included_content, one.tenant().included_content);
        assert!(
            Layout::from_bytes(&without.to_bytes()).unwrap().tenant().included_content.is_none()
        );
    }

    /// L3.4, Z2.5: included files of two tenants are one project, so provider objects have unique
    /// names across them.
    #[test]
    fn provider_objects_have_unique_names_across_included_files() {
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

    /// Z2.5, Z5.2: no repository can pass for the included files, neither by its canonical name,
    /// which identifies commits, nor by connection and name, which identify keys.
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
                let reported: Vec<String> = errors.iter().map(ToString::to_string).collect();
                assert_eq!(
                    (reported.len() == 1, config.tenants[0].projects.is_empty()),
                    (is_refused, is_refused),
                    "{reported:?}"
                );
                let words = "has the reserved name of the included files, system/included";
                assert!(reported.iter().all(|one| one.contains(words)), "{reported:?}");
            }
        }
    }

    /// Z2.3, Z2.5: included files are next to the main configuration and nowhere else.
    #[test]
    fn no_path_leads_out_of_the_main_configuration_directory() {
        for path in ["/etc/shadow", "../other.yaml", "a/../../b.yaml", "a//b.yaml"] {
            let (found, errors) =
                tenants(&format!("- tenant: {{name: one, include: [{path}, good.yaml]}}\n"));
            let expected = format!("\"{path}\" is not next to the main configuration");
            assert!(errors.len() == 1 && errors[0].contains(&expected), "{path}: {errors:?}");
            assert_eq!(found[0].include, ["good.yaml"]);
        }
        let (_, errors) = tenants("- tenant: {name: one, include: [a.yaml, a.yaml]}\n");
        assert!(errors.len() == 1 && errors[0].contains("names a.yaml twice"), "{errors:?}");
    }
}
