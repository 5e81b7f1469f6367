//! Decrypts the secrets of jobs with the key pairs of their projects (Z5.1 to Z5.3), and opens the
//! SSH keys of projects and tenants (Z8.2). Plaintext stays in memory: [`crate::playbook`] passes
//! it only to the playbooks that may use it, and [`crate::ssh`] passes SSH keys only to the build's
//! agent.

use crate::id_token::TokenIssuer;
use crate::job::{BuildSshKey, OpenedSecrets};
use serde_json::{Map, Value};
use sluice_keys::token::TokenSigner;
use sluice_keys::{Ciphertext, ProjectKey, RsaError, Secret};
use sluice_model::build::Order;
use sluice_model::job::FrozenJob;
use sluice_model::{ConnectionName, ProjectName, Timestamp};
use sluice_records::oidc_key::{self, SigningPeriod};
use sluice_records::project_key::{self, KeyPairPem};
use sluice_records::ssh_key::{self, SshKeyOwner};
use sluice_runtime::{PortError, Ports};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of cached key pairs.
const CACHED_MAX: usize = 64;
/// Seconds for which it is believed that a project or a tenant has no SSH key pair, so that builds
/// do not look for it each time. A deployment job always looks.
const ABSENT_SECONDS: u64 = 120;
/// The maximum nesting depth of a secret's data.
const DEPTH_MAX: usize = 32;
/// The keys that mark a ciphertext in a secret's data.
const TAGS: [&str; 2] = ["!encrypted/pkcs1-oaep", "!encrypted/pkcs1"];

/// Loads and caches what builds need of private keys: the key pairs of projects that open secrets,
/// the SSH keys of projects and tenants, and the signer of OIDC tokens. A pair is never replaced,
/// so one that is cached is never stale. It has no `Debug`, because it holds private keys.
pub struct ProjectKeys {
    /// Access to objects and sealing.
    ports: Ports,
    /// Recently used key pairs by object name, the oldest first.
    cached: Mutex<VecDeque<(String, Arc<ProjectKey>)>>,
    /// Recently used SSH keys by object name, the oldest first.
    cached_ssh: Mutex<VecDeque<(String, CachedSshKey)>>,
    /// The signer of OIDC tokens that was used last.
    signer: Mutex<Option<(SigningPeriod, Arc<TokenSigner>)>>,
}

/// What was found of an SSH key pair.
#[derive(Clone)]
enum CachedSshKey {
    /// The private key in PEM. A pair is never replaced, so this is never stale.
    Present(Arc<Secret>),
    /// There was no pair at this time.
    Absent(Timestamp),
}

impl ProjectKeys {
    /// Creates an empty cache that loads key pairs through `ports`.
    pub fn new(ports: Ports) -> Self {
        let (cached, cached_ssh, signer) = Default::default();
        Self { ports, cached, cached_ssh, signer }
    }

    /// Decrypts all secrets of a build: those of its job's playbooks, as [`Self::open`] does, and
    /// its SSH keys. These are, in the order in which they are tried, that of the change's project,
    /// only in a pipeline that runs after review, and that of the tenant (Z8.1). A pair that does
    /// not exist is left out: no host can trust it yet. `issuer` is the issuer of OIDC tokens whose
    /// secret names none.
    pub async fn open_for_build(
        &self,
        order: &Order,
        job: &FrozenJob,
        issuer: &str,
    ) -> Result<OpenedSecrets, PortError> {
        let mut opened = self.open(job).await?;
        let change = &order.change.key;
        let of_project = SshKeyOwner::Project(&change.connection, &change.project);
        let of_tenant = SshKeyOwner::Tenant(&order.queue.tenant);
        let owners = [
            // A proposed change must not log in where only reviewed ones may (Z8.2).
            order.post_review.then(|| (of_project, format!("project {}", change.project))),
            Some((of_tenant, format!("tenant {}", order.queue.tenant))),
        ];
        for (owner, name) in owners.into_iter().flatten() {
            if let Some(private) = self.ssh_key(owner, job.run_time.host.is_some()).await? {
                opened.add_ssh_key(BuildSshKey { owner: name, private });
            }
        }
        let mut playbooks = job.pre_run.iter().chain(&job.run).chain(&job.post_run);
        if playbooks.any(|playbook| playbook.secrets.values().any(|secret| secret.oidc.is_some())) {
            let signer = self.token_signer().await?;
            opened.set_token_issuer(TokenIssuer { signer, issuer: issuer.to_owned() });
        }
        Ok(opened)
    }

    /// Returns the signer of OIDC tokens for this week, and makes its key pair if there is none.
    async fn token_signer(&self) -> Result<Arc<TokenSigner>, PortError> {
        let period = SigningPeriod::of(self.ports.clock.now());
        let cached = self.signer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, signer)) = cached.filter(|(of, _)| *of == period) {
            return Ok(signer);
        }
        let failed =
            |error: RsaError| PortError::unknown(format!("open {}", period.object()), error);
        let stored = match oidc_key::open(&self.ports, period).await? {
            Some(stored) => Some(stored),
            None => {
                let made = tokio::task::spawn_blocking(ProjectKey::generate_for_signatures).await;
                let made = made.map_err(|error| {
                    PortError::unknown(format!("make {}", period.object()), error)
                })?;
                let made = made.map_err(failed)?;
                let private = made.to_pem().map_err(failed)?;
                let public = made.public().to_pem().map_err(failed)?;
                let pair = KeyPairPem { private: private.expose(), public: &public };
                oidc_key::store(&self.ports, period, pair).await?;
                // Another executor may have stored its own.
                oidc_key::open(&self.ports, period).await?
            }
        };
        let stored = stored.ok_or_else(|| {
            PortError::unknown(format!("open {}", period.object()), "it was deleted meanwhile")
        })?;
        let signer = Arc::new(TokenSigner::from_pem(&Secret::new(stored)).map_err(failed)?);
        let mut cached = self.signer.lock().unwrap_or_else(PoisonError::into_inner);
        *cached = Some((period, signer.clone()));
        Ok(signer)
    }

    /// Returns the private SSH key of a project or tenant, from the cache or from storage; `None`
    /// if there is no pair, which may be [`ABSENT_SECONDS`] old unless the key is `needed`.
    async fn ssh_key(
        &self,
        owner: SshKeyOwner<'_>,
        needed: bool,
    ) -> Result<Option<Arc<Secret>>, PortError> {
        let (name, now) = (owner.object(), self.ports.clock.now());
        let cached = {
            let cached = self.cached_ssh.lock().unwrap_or_else(PoisonError::into_inner);
            cached.iter().find(|(cached_name, _)| *cached_name == name).map(|(_, key)| key.clone())
        };
        match cached {
            Some(CachedSshKey::Present(key)) => return Ok(Some(key)),
            Some(CachedSshKey::Absent(at)) if !needed && now.since(at) < ABSENT_SECONDS * 1_000 => {
                return Ok(None);
            }
            _ => {}
        }
        let found = ssh_key::open(&self.ports, owner).await?.map(|pem| Arc::new(Secret::new(pem)));
        let entry = match &found {
            Some(key) => CachedSshKey::Present(key.clone()),
            None => CachedSshKey::Absent(now),
        };
        let mut cached = self.cached_ssh.lock().unwrap_or_else(PoisonError::into_inner);
        cached.retain(|(cached_name, _)| *cached_name != name);
        cached.push_back((name, entry));
        if cached.len() > CACHED_MAX {
            cached.pop_front();
        }
        Ok(found)
    }

    /// Decrypts all secrets of a job's playbooks. A secret is left out if its project has no key
    /// pair, or if it cannot be decrypted with that key pair, as when it was encrypted for another
    /// project. The runner then ends the job with a configuration error that names the secret. A
    /// secret that requests an OIDC token has nothing to decrypt. An error only if the store or the
    /// key service does not answer, or a stored key pair is damaged.
    pub async fn open(&self, job: &FrozenJob) -> Result<OpenedSecrets, PortError> {
        let mut opened = OpenedSecrets::default();
        for playbook in job.pre_run.iter().chain(&job.run).chain(&job.post_run) {
            for secret in playbook.secrets.values() {
                if secret.oidc.is_some() || opened.get(secret).is_some() {
                    continue;
                }
                // Which playbooks may use a secret was decided when the job was frozen (Z4.4,
                // Z5.3).
                let key = self.key(&secret.connection, &secret.project).await?;
                let Some(key) = key else { continue };
                if let Some(plain) = plaintext(&secret.data, &key, 0) {
                    opened.insert(secret, plain);
                }
            }
        }
        Ok(opened)
    }

    /// Returns the key pair of a project, from the cache or from storage; `None` if the project has
    /// none. An error if the stored key pair is damaged.
    async fn key(
        &self,
        connection: &ConnectionName,
        project: &ProjectName,
    ) -> Result<Option<Arc<ProjectKey>>, PortError> {
        let name = project_key::object(connection, project);
        if let Some(cached) = self.find_cached(&name) {
            return Ok(Some(cached));
        }
        let Some(pem) = project_key::open(&self.ports, connection, project).await? else {
            return Ok(None);
        };
        let key = ProjectKey::from_pem(&Secret::new(pem));
        let key = Arc::new(key.map_err(|error| PortError::unknown(format!("open {name}"), error))?);
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.push_back((name, key.clone()));
        if cached.len() > CACHED_MAX {
            cached.pop_front();
        }
        Ok(Some(key))
    }

    /// Returns a cached key pair by its object's name; `None` if it is not cached.
    fn find_cached(&self, name: &str) -> Option<Arc<ProjectKey>> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.iter().find(|(cached_name, _)| cached_name == name).map(|(_, key)| key.clone())
    }
}

/// Returns a value with each ciphertext decrypted; a ciphertext is a mapping whose only key is one
/// of [`TAGS`]. `None` if a ciphertext cannot be decrypted or its plaintext is no text, or the
/// value is nested more than [`DEPTH_MAX`] deep. `depth` is the depth of this value, 0 for the
/// outermost.
fn plaintext(value: &Value, key: &ProjectKey, depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    match value {
        Value::Object(map) => {
            let tagged = TAGS.iter().find_map(|tag| map.get(*tag)).filter(|_| map.len() == 1);
            if let Some(ciphertext) = tagged {
                let plain = key.decrypt(&Ciphertext::from_value(ciphertext).ok()?).ok()?;
                return plain.expose_text().map(|text| Value::String(text.to_owned()));
            }
            let open = |(name, value): (&String, &Value)| {
                Some((name.clone(), plaintext(value, key, depth + 1)?))
            };
            map.iter().map(open).collect::<Option<Map<String, Value>>>().map(Value::Object)
        }
        Value::Array(list) => list
            .iter()
            .map(|value| plaintext(value, key, depth + 1))
            .collect::<Option<Vec<Value>>>()
            .map(Value::Array),
        plain => Some(plain.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_memory::World;
    use sluice_model::Timestamp;
    use sluice_model::job::SecretUse;
    use sluice_runtime::object::PutMode;

    fn secret(project: &str, data: Value) -> SecretUse {
        SecretUse {
            secret: "login".to_owned(),
            project: ProjectName::new("forge.test", project),
            connection: "github".into(),
            data,
            oidc: None,
        }
    }

    fn job(project: &str, secret: &SecretUse) -> FrozenJob {
        let playbook = json!({
            "connection": "github", "project": format!("forge.test/{project}"), "branch": "main", "path": "use.yaml",
            "trusted": true, "secrets": {"login": secret},
        });
        let job = json!({"name": "deploy", "voting": true, "attempts": 1, "nodesets": [], "run": [playbook]});
        serde_json::from_value(job).unwrap()
    }

    /// Stores a key pair for a project of `github`, and returns the public key of the stored pair.
    async fn store(ports: &Ports, project: &ProjectName, pair: &ProjectKey) -> String {
        let (private, public) = (pair.to_pem().unwrap(), pair.public().to_pem().unwrap());
        let pem = KeyPairPem { private: private.expose(), public: &public };
        project_key::store(ports, &"github".into(), project, pem).await.unwrap()
    }

    /// Z5.2: a private key that was stored without its public key stays in use.
    #[tokio::test]
    async fn a_private_key_that_was_stored_alone_is_opened_and_not_replaced() {
        let world = World::new(1, 0, Timestamp(1_800_000_000_000));
        let ports = world.ports();
        let pair = ProjectKey::generate().unwrap();
        let (connection, one) =
            (ConnectionName::from("github"), ProjectName::new("forge.test", "org/one"));
        let (pem, public) = (pair.to_pem().unwrap(), pair.public().to_pem().unwrap());
        let name = project_key::object(&connection, &one);
        let sealed = ports.seal.seal(&name, pem.expose()).await.unwrap();
        for (key, content) in
            [(name, sealed), ("keys/github/org/one.pub".to_owned(), public.clone().into())]
        {
            ports.objects.put(&key, content.into(), PutMode::Always, "text/plain").await.unwrap();
        }
        let opened = project_key::open(&ports, &connection, &one).await.unwrap();
        assert_eq!(opened.unwrap(), pem.expose());
        let stored = store(&ports, &one, &ProjectKey::generate().unwrap()).await;
        assert_eq!(stored, public);
    }

    /// Z5.1, Z5.2, Z5.3, E4
    #[tokio::test]
    async fn a_secret_opens_with_its_own_projects_key_and_with_no_other() {
        let world = World::new(1, 0, Timestamp(1_800_000_000_000));
        let ports = world.ports();
        let pair = ProjectKey::generate().unwrap();
        let (connection, one) =
            (ConnectionName::from("github"), ProjectName::new("forge.test", "org/one"));
        let (pem, public) = (pair.to_pem().unwrap(), pair.public().to_pem().unwrap());
        let stored = store(&ports, &one, &pair).await;
        assert_eq!(stored, public);
        let other = ProjectKey::generate().unwrap();
        assert_eq!(store(&ports, &one, &other).await, public, "a key pair is never replaced");
        let stored = ports.objects.get("keys/github/org/one.pem").await.unwrap().unwrap();
        let sealed = stored.bytes.strip_prefix(public.as_bytes()).unwrap();
        let unsealed = ports.seal.open("keys/github/org/one.pem", sealed).await.unwrap();
        assert_eq!(unsealed, pem.expose(), "it is sealed under its own name");
        assert_ne!(sealed, unsealed);
        let opened = project_key::open(&ports, &connection, &one).await.unwrap();
        assert_eq!(opened.unwrap(), pem.expose());

        let hidden = pair.public().encrypt(b"correct horse").unwrap().to_value();
        let data =
            json!({"user": "deploy", "deep": [{"password": {"!encrypted/pkcs1-oaep": hidden}}]});
        let keys = ProjectKeys::new(ports.clone());
        let own = secret("org/one", data.clone());
        let opened = keys.open(&job("org/one", &own)).await.unwrap();
        let expected = json!({"user": "deploy", "deep": [{"password": "correct horse"}]});
        assert_eq!(opened.get(&own), Some(&expected));

        // E4: far too short for any key: left out, and the job that would use it names it.
        let sample = secret(
            "org/one",
            json!({"username": {"!encrypted/pkcs1": "o+7OscBFYWJh26rlLWpBIg=="}}),
        );
        assert_eq!(keys.open(&job("org/one", &sample)).await.unwrap().get(&sample), None);

        let copied = secret("org/two", data.clone());
        let opened = keys.open(&job("org/two", &copied)).await.unwrap();
        assert_eq!(opened.get(&copied), None, "that project has no key pair");
        store(&ports, &copied.project, &other).await;
        let opened = keys.open(&job("org/two", &copied)).await.unwrap();
        assert_eq!(opened.get(&copied), None, "it was encrypted for another project");
        // A parent that it is passed to, or a child that inherits it, may lie in another project,
        // or at another forge.
        let mut elsewhere = job("org/two", &own);
        elsewhere.run[0].connection = "other".into();
        let opened = keys.open(&elsewhere).await.unwrap();
        assert_eq!(opened.get(&own), Some(&expected));
    }
}
