//! Checks out a job's playbooks and their roles (Z4.6, Z4.9).

use crate::code_trust::CodeTrust;
use crate::galaxy::{InstallError, RoleInstaller};
use crate::job::{JobAttempt, RepositorySources};
use crate::jobdir::Jobdir;
use crate::playbook::PreparedPlaybook;
use crate::playbook_files::{find_playbook, wrap_plays_in_list};
use crate::roles::{RoleOrigin, roles_directory};
use crate::settings::AnsibleSettings;
use crate::workspace::{
    WorkspaceError, checkout_outside_workspace, choose_branch, choose_roles, states_of,
};
use serde_json::{Map, Value, json};
use sluice_model::build::PlaybookPhase;
use sluice_model::git::{BranchKey, Oid};
use sluice_model::job::{Playbook, RoleRepository, RoleUse};
use sluice_model::{BranchName, ConnectionName, ProjectName};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Why the playbooks of a job could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A repository is missing.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// A role from Ansible Galaxy is missing.
    #[error(transparent)]
    Galaxy(#[from] InstallError),
    /// The playbook does not exist.
    #[error(
        "{project}@{branch} has no playbook {path} (also searched with .yaml and .yml, and below playbooks/)"
    )]
    NoPlaybook {
        /// The project.
        project: ProjectName,
        /// The branch.
        branch: BranchName,
        /// The name as written.
        path: String,
    },
    /// A file could not be read or written.
    #[error("could not prepare {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The prepared playbooks of a job.
#[derive(Debug)]
pub struct Playbooks {
    /// All playbooks, in the order in which they run.
    pub all: Vec<PreparedPlaybook>,
    /// `zuul.playbook_context`.
    pub context: Value,
    /// Lines for the job's log: which roles from Ansible Galaxy were installed.
    pub notes: Vec<String>,
}

/// Checks out the playbooks of all phases with their roles, and installs roles from Ansible Galaxy;
/// works once for each job directory, whose accounts the caller has written.
/// Returns the playbooks in the order in which they run, with `zuul.playbook_context`, which
/// describes them. If the job names no main playbook and only candidates are listed, just the first
/// one that exists is prepared. An error if a playbook, or the last of such candidates, does not
/// exist, a repository cannot be checked out, or a role cannot be installed.
pub async fn prepare_playbooks(
    job: &JobAttempt<'_>,
    sources: &dyn RepositorySources,
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
) -> Result<Playbooks, PrepareError> {
    let version = job.job.ansible_version();
    let installer = RoleInstaller::new(settings, jobdir, version, job.lease.clone());
    let mut checkouts =
        PlaybookCheckouts { job, sources, jobdir, placed: BTreeMap::new(), installer };
    let mut all = Vec::new();
    let mut context = Map::new();
    let phases = [
        (PlaybookPhase::Pre, "pre_playbooks", &job.job.pre_run),
        (PlaybookPhase::Run, "playbooks", &job.job.run),
        (PlaybookPhase::Post, "post_playbooks", &job.job.post_run),
    ];
    for (phase, key, playbooks) in phases {
        let mut listed = Vec::new();
        // Of implied candidates the first existing one runs; if none exists, the error names the
        // last one (Z4.9).
        let are_candidates = phase == PlaybookPhase::Run && job.job.run_time.implied_run;
        for (index, playbook) in playbooks.iter().enumerate() {
            if are_candidates && !listed.is_empty() {
                break;
            }
            let position = if are_candidates { 0 } else { index };
            let (prepared, roles) = match checkouts.prepare(phase, position, playbook).await {
                Err(PrepareError::NoPlaybook { .. })
                    if are_candidates && index + 1 < playbooks.len() =>
                {
                    continue;
                }
                prepared => prepared?,
            };
            listed.push(json!({ "path": prepared.file, "roles": roles }));
            all.push(prepared);
        }
        context.insert(key.to_owned(), Value::Array(listed));
    }
    let projects: Map<String, Value> = checkouts
        .placed
        .iter()
        .map(|((project, commit, _), (path, branch))| {
            (
                path.display().to_string(),
                json!({ "canonical_name": project, "checkout": branch, "commit": commit }),
            )
        })
        .collect();
    context.insert("playbook_projects".to_owned(), Value::Object(projects));
    let notes = checkouts.installer.finish();
    Ok(Playbooks { all, context: Value::Object(context), notes })
}

type CheckoutKey = (ProjectName, Oid, &'static str);

/// Checkouts shared by playbooks and roles, one per project, commit and trust.
struct PlaybookCheckouts<'a> {
    /// The attempt whose playbooks are prepared.
    job: &'a JobAttempt<'a>,
    /// Provides the packs of repositories.
    sources: &'a dyn RepositorySources,
    /// The directories of the build.
    jobdir: &'a Jobdir,
    /// The checkouts so far, with their branches.
    placed: BTreeMap<CheckoutKey, (PathBuf, BranchName)>,
    /// Installs roles from Ansible Galaxy.
    installer: RoleInstaller<'a>,
}

impl PlaybookCheckouts<'_> {
    /// Checks out a playbook and the repositories of its roles, and installs its roles from Ansible
    /// Galaxy. Returns the playbook, and for each
    /// repository of roles an entry for `zuul.playbook_context`; a repository that no `roles`
    /// attribute lists has none if it contains no roles. `index` is the position in the phase,
    /// which names the playbook's directory: two prepared playbooks must not share it. A file that
    /// contains a single play or several YAML documents is rewritten as one list, except through a
    /// link that leaves the checkout. An error if the file does not exist or a repository cannot be
    /// checked out.
    async fn prepare(
        &mut self,
        phase: PlaybookPhase,
        index: usize,
        playbook: &Playbook,
    ) -> Result<(PreparedPlaybook, Vec<Value>), PrepareError> {
        let trust = if playbook.trusted { CodeTrust::Trusted } else { CodeTrust::Untrusted };
        let (branch, commit) = self.playbook_commit(playbook)?;
        let checkout =
            self.checkout(&playbook.connection, &playbook.project, &branch, &commit, trust).await?;
        let found =
            find_playbook(&checkout, &playbook.path).ok_or_else(|| PrepareError::NoPlaybook {
                project: playbook.project.clone(),
                branch: branch.clone(),
                path: playbook.path.clone(),
            })?;
        let file = checkout.join(&found);
        let readable = |source| PrepareError::File { path: file.clone(), source };
        // The executor does not rewrite a file outside of the checkout through a link. In the
        // sandbox the link may be followed.
        if std::fs::canonicalize(&file)
            .map_err(readable)?
            .starts_with(std::fs::canonicalize(&checkout).map_err(readable)?)
            && let Some(list) =
                wrap_plays_in_list(&std::fs::read_to_string(&file).map_err(readable)?)
        {
            std::fs::write(&file, list).map_err(readable)?;
        }
        let mut prepared = PreparedPlaybook {
            phase,
            index,
            trust,
            canonical: format!("{}/{}", playbook.project, found.display()),
            branch,
            file,
            roles_path: Vec::new(),
            has_secrets: !playbook.secrets.is_empty()
                || !playbook.containers.is_empty()
                || !self.job.inherited.secret_data.is_empty(),
            nesting_level: playbook.nesting_level,
            cleanup: playbook.cleanup,
            preserve_home_paths: playbook.preserve_home_paths.clone(),
        };
        let mut role_entries = Vec::new();
        for (number, role) in playbook.roles.iter().enumerate() {
            let role = match role {
                RoleUse::Zuul(role) => role,
                RoleUse::Galaxy(role) => {
                    prepared.roles_path.push(self.installer.install(role, trust).await?);
                    continue;
                }
            };
            let place = self.jobdir.ansible.join(prepared.name()).join(format!("role_{number}"));
            if let Some((path, entry)) = self.role(playbook, role, &place, trust).await? {
                prepared.roles_path.push(path);
                role_entries.push(entry);
            }
        }
        // Ansible searches the playbook's own directory before these roles.
        Ok((prepared, role_entries))
    }

    /// Checks out a repository of roles and links it into `place`, a directory for this link alone.
    /// `trust` is that of the playbook. Returns the directory for Ansible's roles path, and the
    /// entry for `zuul.playbook_context`. `None` if the repository contains no roles and no `roles`
    /// attribute lists it (`implicit`). The link is named after the last part of the configured
    /// name: if the repository itself is one role, this is the role's name.
    async fn role(
        &mut self,
        playbook: &Playbook,
        role: &RoleRepository,
        place: &Path,
        trust: CodeTrust,
    ) -> Result<Option<(PathBuf, Value)>, PrepareError> {
        let own = role.project == playbook.project;
        let (branch, commit, why) = if own {
            let (branch, commit) = self.playbook_commit(playbook)?;
            (branch, commit, "playbook branch")
        } else {
            self.role_commit(playbook, role, trust)?
        };
        let checkout =
            self.checkout(&role.connection, &role.project, &branch, &commit, trust).await?;
        let name = role
            .target_name
            .rsplit('/')
            .next()
            .filter(|name| !name.is_empty() && *name != "..")
            .unwrap_or("role");
        let link = place.join(name);
        let writable = |source| PrepareError::File { path: link.clone(), source };
        std::fs::create_dir_all(place).map_err(writable)?;
        std::os::unix::fs::symlink(&checkout, &link).map_err(writable)?;
        let offered = if role.implicit { RoleOrigin::Implicit } else { RoleOrigin::Requested };
        Ok(roles_directory(&link, offered).map(|path| {
            let entry = json!({
                "link_name": link,
                "link_target": checkout,
                "role_path": path,
                "checkout": branch,
                "checkout_description": why,
            });
            (path, entry)
        }))
    }

    /// Returns the branch and commit of a playbook. A trusted playbook has the commit that was
    /// merged when the job was frozen; if none is recorded, that of its branch without the tested
    /// changes. An untrusted one has the tested commit. If the tested state lacks the playbook's
    /// branch, the branch is chosen as for a repository in the workspace. An error if the tested
    /// state lacks the project.
    fn playbook_commit(&self, playbook: &Playbook) -> Result<(BranchName, Oid), PrepareError> {
        if let (true, Some(commit)) = (playbook.trusted, &playbook.commit) {
            return Ok((playbook.branch.clone(), commit.clone()));
        }
        let states = states_of(self.job.speculation, &playbook.project);
        let same_branch =
            states.iter().copied().find(|state| state.branch.branch == playbook.branch);
        let state = same_branch
            .or_else(|| choose_branch(self.job, &playbook.project, None).map(|(state, _)| state));
        let state = state
            .ok_or_else(|| WorkspaceError::NotPrepared { project: playbook.project.clone() })?;
        let commit = if playbook.trusted { &state.base.id } else { &state.result.id };
        Ok((state.branch.branch.clone(), commit.clone()))
    }

    /// Returns the branch and commit of the roles that a playbook takes from another project, and
    /// the reason for the branch. Roles of a trusted playbook are at the commit without the tested
    /// changes, those of an untrusted one at the tested commit. An error if [`choose_roles`] finds
    /// no branch.
    fn role_commit(
        &self,
        playbook: &Playbook,
        role: &RoleRepository,
        trust: CodeTrust,
    ) -> Result<(BranchName, Oid, &'static str), PrepareError> {
        let choice = choose_roles(self.job, &role.project, &playbook.branch, trust);
        let (state, why) =
            choice.ok_or_else(|| WorkspaceError::NotPrepared { project: role.project.clone() })?;
        let commit = match trust {
            CodeTrust::Trusted => &state.base.id,
            CodeTrust::Untrusted => &state.result.id,
        };
        Ok((state.branch.branch.clone(), commit.clone(), why))
    }

    /// Checks out a commit of a project for a playbook or role, outside of the workspace, and
    /// returns the path. `branch` is the name that the checked-out branch gets. If the commit is
    /// checked out already for the same trust, that checkout is returned, whatever its branch.
    async fn checkout(
        &mut self,
        connection: &ConnectionName,
        project: &ProjectName,
        branch: &BranchName,
        commit: &Oid,
        trust: CodeTrust,
    ) -> Result<PathBuf, PrepareError> {
        let key = (project.clone(), commit.clone(), trust.as_str());
        if let Some((path, _)) = self.placed.get(&key) {
            return Ok(path.clone());
        }
        let number = self.placed.len();
        let path = self
            .jobdir
            .root
            .join(trust.as_str())
            .join(format!("project_{number}"))
            .join(project.as_str());
        let branch_key = BranchKey { project: project.clone(), branch: branch.clone() };
        checkout_outside_workspace(
            self.sources,
            connection,
            self.job.speculation,
            &branch_key,
            commit,
            &path,
        )
        .await?;
        self.placed.insert(key, (path.clone(), branch.clone()));
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{AttemptScope, InheritedData, Lease, OpenedSecrets};
    use crate::sources::ObjectSources;
    use sluice_git::{NewFile, keys, plant};
    use sluice_memory::World;
    use sluice_model::build::{Order, Speculation};
    use sluice_model::change::{ChangeKey, ChangeRef};
    use sluice_model::git::BranchState;
    use sluice_model::job::FrozenJob;
    use sluice_model::{BuildId, QueueKey, Timestamp};
    use sluice_runtime::object::PutMode;

    /// Z2.5, Z4.6, Z4.9: playbooks and roles next to the main configuration come from object
    /// storage and are trusted, like those of a config project.
    #[tokio::test]
    async fn playbooks_of_the_main_configuration_are_prepared_like_those_of_a_config_project() {
        let file = |text: &str| NewFile::File(text.as_bytes().to_vec());
        let files = BTreeMap::from([
            ("playbooks/unit.yaml".to_owned(), file("- hosts: all\n  roles: [greeter]\n")),
            ("roles/greeter/tasks/main.yaml".to_owned(), file("- debug: msg=hello\n")),
        ]);
        let made = plant(&files, "Message").unwrap();
        let ports = World::new(1, 0, Timestamp(1_800_000_000_000)).ports();
        let project = ProjectName::new("system", "included");
        let key = keys::pack(&project, &made.pack);
        ports
            .objects
            .put(&key, made.object.into(), PutMode::Always, "application/octet-stream")
            .await
            .unwrap();

        let folder = tempfile::tempdir().unwrap();
        let build = BuildId::derive(&["a build"]);
        let jobdir =
            Jobdir::make(&folder.path().join("job"), &folder.path().join("run"), &build).unwrap();
        let key_of_change = ChangeKey::change("forge".into(), "forge.test/org/one".into(), 7);
        let head = made.commit.id.clone();
        let change =
            ChangeRef { key: key_of_change, branch: "main".into(), head, patchset: "1".to_owned() };
        let order: Order = serde_json::from_value(json!({
            "build": build, "queue": QueueKey { tenant: "one".into(), pipeline: "check".into(), queue: "q".into() },
            "item": "b".repeat(32), "generation": 1, "job": "unit", "attempt": 1, "max_attempts": 3, "voting": true, "graph": "g",
            "speculation": "s", "change": change, "event_id": "e1", "post_review": false, "request": null, "ordered_at": 0
        }))
        .unwrap();
        let playbook = |path: &str| {
            json!({
                "connection": "system", "project": project, "branch": "main", "commit": made.commit.id, "path": path, "trusted": true,
                "roles": [{"connection": "system", "project": project, "target_name": "included", "implicit": true}]
            })
        };
        let frozen = |path: &str| -> FrozenJob {
            let run = [playbook(path)];
            serde_json::from_value(
                json!({"name": "unit", "voting": true, "attempts": 1, "nodesets": [], "run": run}),
            )
            .unwrap()
        };
        let branch = BranchKey { project: project.clone(), branch: "main".into() };
        let state = BranchState::untouched(branch, made.commit.clone(), vec![key]);
        let (changes, config_branches, applied_members, defaults) = Default::default();
        let speculation = Speculation {
            changes,
            branches: vec![state],
            config_branches,
            applied_members,
            containing: None,
            defaults,
        };
        let (secrets, inherited) = (OpenedSecrets::default(), InheritedData::default());
        let sources = ObjectSources::new(ports, folder.path().join("cache"));
        let settings = AnsibleSettings::new(folder.path());
        let prepare = async |frozen: &FrozenJob| {
            let job = JobAttempt {
                order: &order,
                job: frozen,
                speculation: &speculation,
                nodes: &[],
                node_key: None,
                secrets: &secrets,
                child_jobs: &[],
                inherited: &inherited,
                scope: AttemptScope::Whole,
                lease: &Lease::unlimited(),
                holder: None,
            };
            prepare_playbooks(&job, &sources, &jobdir, &settings).await
        };

        let error = prepare(&frozen("nowhere")).await.unwrap_err().to_string();
        assert!(error.starts_with("system/included@main has no playbook nowhere"), "{error}");
        std::fs::remove_dir_all(jobdir.root.join("trusted")).unwrap();
        let done = prepare(&frozen("unit")).await.unwrap();
        let [prepared] = &done.all[..] else { panic!("{:?}", done.all) };
        assert!(prepared.trust == CodeTrust::Trusted, "{prepared:?}");
        assert_eq!(prepared.canonical, "system/included/playbooks/unit.yaml");
        assert!(prepared.file.starts_with(jobdir.root.join("trusted")), "{prepared:?}");
        assert_eq!(
            std::fs::read_to_string(&prepared.file).unwrap(),
            "- hosts: all\n  roles: [greeter]\n"
        );
        let [roles] = &prepared.roles_path[..] else { panic!("{:?}", prepared.roles_path) };
        assert!(roles.ends_with("role_0/included/roles"), "{roles:?}");
        assert_eq!(
            std::fs::read_to_string(roles.join("greeter/tasks/main.yaml")).unwrap(),
            "- debug: msg=hello\n"
        );
    }
}
