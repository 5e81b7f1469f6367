//! What the next layout takes over from this one: each file is parsed once for each content.

use super::{Layout, shapes};
use crate::fragment::{self, Fragment};
use sluice_model::{BranchName, ProjectName};
use std::sync::Arc;

impl Layout {
    /// Returns the files of a branch, parsed, where they come to `content` ([`fragment::content`])
    /// and this program would parse them the same: who builds the next layout need neither fetch
    /// nor parse them. What is laid over the layout is left aside.
    pub fn kept(
        &self,
        project: &ProjectName,
        branch: &BranchName,
        content: &str,
    ) -> Option<Vec<Arc<Fragment>>> {
        let (rank, _) = self.base.ground.project(project).filter(|_| self.is_parsed_as_now())?;
        let files = self.base.files_of(rank).filter(|(_, file)| file.source().branch == *branch);
        let found: Vec<Arc<Fragment>> = files.map(|(_, file)| Arc::clone(&file.fragment)).collect();
        (fragment::content(found.iter().map(|file| file.hash.as_str())) == content).then_some(found)
    }

    /// Returns whether its files were parsed as this program parses them; one that an older version
    /// stored may say less of them.
    pub fn is_parsed_as_now(&self) -> bool {
        self.base.parsed_by == shapes::name()
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
        fragment::content(hashes.iter().map(String::as_str))
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

    /// Z6.7: the files of a branch are parsed once for each content, whichever layout has them,
    /// opened from storage or not.
    #[test]
    fn the_files_of_a_branch_are_taken_over_as_long_as_all_of_them_are_as_they_were() {
        let (a, b) = (
            file("main", "zuul.d/a.yaml", "- job: {name: a}"),
            file("main", "zuul.d/b.yaml", "- job: {name: b}"),
        );
        let other = file("stable", "zuul.d/a.yaml", "- job: {name: c}");
        let built = layout(&[&a, &b, &other]);
        for layout in [&built, &Layout::from_bytes(&built.to_bytes()).unwrap()] {
            let kept = |branch: &str, files: &[&SourceFile]| {
                layout.kept(&a.source.project, &branch.into(), &content(files))
            };
            let found = kept("main", &[&b, &a]).unwrap();
            assert!(
                Arc::ptr_eq(&found[0], &layout.fragments()[0]) && found.len() == 2,
                "{found:?}"
            );
            assert_eq!(kept("stable", &[&other]).unwrap().len(), 1);
            assert!(kept("stable", &[&a, &b]).is_none(), "they are another branch's");
            let edited =
                SourceFile { text: "- job: {name: b, attempts: 2}".to_owned(), ..b.clone() };
            assert!(kept("main", &[&a, &edited]).is_none());
            assert!(kept("main", &[&a]).is_none(), "one was removed");
            let mut trusted = b.clone();
            trusted.source.trust = Trust::Config;
            assert!(kept("main", &[&a, &trusted]).is_none(), "they are read with another trust");
            assert!(
                layout.kept(&"github.com/org/q".into(), &"main".into(), &content(&[])).is_none()
            );
        }
    }

    /// Z6.7: what a newer program understands counts with the next layout, also in files that
    /// nobody touched.
    #[test]
    fn files_that_another_version_parsed_are_not_taken_over() {
        let a = file("main", ".zuul.yaml", "- job: {name: a}");
        let mut layout = layout(&[&a]);
        let id = layout.id().to_owned();
        Arc::get_mut(&mut layout.base).unwrap().parsed_by += 1;
        let layout = Layout::from_bytes(&layout.to_bytes()).unwrap();
        assert!(!layout.is_parsed_as_now());
        assert!(layout.kept(&a.source.project, &a.source.branch, &content(&[&a])).is_none());
        assert_eq!(layout.id(), id, "it is found under its name all the same");
    }
}
