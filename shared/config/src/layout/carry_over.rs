//! What the next layout takes over from this one: parsed files whose content is unchanged.

use super::{Layout, schema_version};
use crate::fragment::{self, Fragment};
use sluice_model::{BranchName, ProjectName};
use std::sync::Arc;

impl Layout {
    /// Returns the parsed files of a branch if their content hash ([`fragment::content_hash`])
    /// equals `content`; then the next layout need not fetch or parse them. Some, but empty, if the
    /// branch has no files and `content` is the hash of none. `None` if the content differs, the
    /// tenant lacks the project, or another version of the parser read the files. Ignores overlays.
    pub fn carry_over(
        &self,
        project: &ProjectName,
        branch: &BranchName,
        content: &str,
    ) -> Option<Vec<Arc<Fragment>>> {
        let (rank, _) = self.base.inputs.project(project).filter(|_| self.is_parsed_as_now())?;
        let files = self.base.files_of(rank).filter(|(_, file)| file.source().branch == *branch);
        let found: Vec<Arc<Fragment>> = files.map(|(_, file)| Arc::clone(&file.fragment)).collect();
        (fragment::content_hash(found.iter().map(|file| file.hash.as_str())) == content)
            .then_some(found)
    }

    /// Returns whether this version of the parser read the layout's files. Another version may have
    /// understood less of them.
    pub fn is_parsed_as_now(&self) -> bool {
        self.base.parsed_by == schema_version::parser_version()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LayoutSources;
    use crate::tenant::TenantProject;
    use crate::{Connections, Source, SourceFile, TenantConfig, Trust};
    use std::collections::BTreeMap;

    fn file(branch: &str, path: &str, text: &str) -> SourceFile {
        let source = Source {
            connection: "github".into(),
            project: "github.com/org/p".into(),
            branch: branch.into(),
            path: path.to_owned(),
            trust: Trust::Untrusted,
        };
        SourceFile { source, text: text.to_owned() }
    }

    fn content(files: &[&SourceFile]) -> String {
        let hashes: Vec<String> = files.iter().map(|file| fragment::hash(file)).collect();
        fragment::content_hash(hashes.iter().map(String::as_str))
    }

    fn layout(files: &[&SourceFile]) -> Layout {
        let mut tenant = TenantConfig::new("one");
        tenant.projects.push(TenantProject::new(
            "github",
            "github.com/org/p".into(),
            Trust::Untrusted,
        ));
        Layout::build(LayoutSources {
            tenant,
            connections: Connections::new(),
            branches: BTreeMap::new(),
            fragments: files.iter().map(|file| Arc::new(fragment::parse(file))).collect(),
        })
    }

    /// Z6.7: a branch's files are parsed once per content, whether the layout was built or decoded.
    #[test]
    fn files_of_a_branch_are_carried_over_while_all_are_unchanged() {
        let (a, b) = (
            file("main", "zuul.d/a.yaml", "- job: {name: a}"),
            file("main", "zuul.d/b.yaml", "- job: {name: b}"),
        );
        let other = file("stable", "zuul.d/a.yaml", "- job: {name: c}");
        let built = layout(&[&a, &b, &other]);
        for layout in [&built, &Layout::from_bytes(&built.to_bytes()).unwrap()] {
            let carry_over = |branch: &str, files: &[&SourceFile]| {
                layout.carry_over(&a.source.project, &branch.into(), &content(files))
            };
            let found = carry_over("main", &[&b, &a]).unwrap();
            assert!(
                Arc::ptr_eq(&found[0], &layout.fragments()[0]) && found.len() == 2,
                "{found:?}"
            );
            assert_eq!(carry_over("stable", &[&other]).unwrap().len(), 1);
            assert!(carry_over("stable", &[&a, &b]).is_none(), "another branch has that content");
            let edited =
                SourceFile { text: "- job: {name: b, attempts: 2}".to_owned(), ..b.clone() };
            assert!(carry_over("main", &[&a, &edited]).is_none());
            assert!(carry_over("main", &[&a]).is_none(), "one was removed");
            let mut trusted = b.clone();
            trusted.source.trust = Trust::Config;
            assert!(carry_over("main", &[&a, &trusted]).is_none(), "the trust differs");
            assert!(
                layout
                    .carry_over(&"github.com/org/q".into(), &"main".into(), &content(&[]))
                    .is_none()
            );
        }
    }

    /// Z6.7: what a newer program understands takes effect with the next layout, also in unchanged
    /// files.
    #[test]
    fn files_parsed_by_another_version_are_not_carried_over() {
        let a = file("main", ".zuul.yaml", "- job: {name: a}");
        let mut layout = layout(&[&a]);
        let id = layout.id().to_owned();
        Arc::get_mut(&mut layout.base).unwrap().parsed_by += 1;
        let layout = Layout::from_bytes(&layout.to_bytes()).unwrap();
        assert!(!layout.is_parsed_as_now());
        assert!(layout.carry_over(&a.source.project, &a.source.branch, &content(&[&a])).is_none());
        assert_eq!(layout.id(), id, "it is found under its name all the same");
    }
}
