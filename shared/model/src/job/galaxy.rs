//! Roles that are installed with `ansible-galaxy`: from a Galaxy server, a git repository or an
//! archive (Z4.6).

use crate::ProjectName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The maximum length of a name or version, in bytes.
const WORD_BYTES_MAX: usize = 128;
/// The maximum length of an address, in bytes.
const ADDRESS_BYTES_MAX: usize = 1_024;

/// A role that a job lists under `roles` as `galaxy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GalaxyRole {
    /// What to install, as written; [`GalaxyRequirement::new`] reads it.
    pub galaxy: String,
    /// The directory in which it is placed, which is the name playbooks use; `None` for the
    /// requirement's own name.
    pub target_name: Option<String>,
    /// The project whose job definition lists it.
    pub project: ProjectName,
    /// Whether that is a config project. Trusted playbooks see no other roles of this kind.
    pub trusted: bool,
}

/// What `ansible-galaxy` is to install, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GalaxyRequirement {
    /// Where the role comes from.
    pub source: GalaxySource,
    /// The version, or the branch, tag or commit of a git repository; `None` for the newest.
    pub version: Option<String>,
    /// The directory in which it is placed: one plain name.
    pub directory: String,
}

/// Where a role comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GalaxySource {
    /// A Galaxy server has it under this name, `namespace.role`.
    Server(String),
    /// A git repository, by its `https://` or `http://` address.
    Git(String),
    /// A tar archive, by its `https://` or `http://` address.
    Archive(String),
}

impl GalaxyRequirement {
    /// Reads what a job names: `role[,version[,name]]`, as on the command line of `ansible-galaxy`.
    /// The role is `namespace.role`, `git+https://…`, an `https://` address that ends in `.git`,
    /// or that of an archive; `http://` is accepted too. `name` is the name beside it in the job,
    /// which counts before the one in the text. Without either the directory is named as
    /// `ansible-galaxy` does: `namespace.role`, or the last part of the address.
    pub fn new(text: &str, name: Option<&str>) -> Result<Self, GalaxyRefusal> {
        let mut parts = text.split(',').map(str::trim);
        let (role, version) = (parts.next().unwrap_or_default(), parts.next());
        let name = name.or(parts.next()).filter(|name| !name.is_empty());
        if parts.next().is_some() {
            return Err(GalaxyRefusal::Parts);
        }
        let version = version.filter(|version| !version.is_empty());
        if version.is_some_and(|version| !is_word(version, "._/+-") || version.contains("..")) {
            return Err(GalaxyRefusal::Version);
        }
        let source = GalaxySource::parse(role)?;
        let directory = name.unwrap_or_else(|| source.own_name());
        if !is_word(directory, "._-") || directory.starts_with('.') {
            return Err(GalaxyRefusal::Directory);
        }
        let directory = directory.to_owned();
        Ok(Self { source, version: version.map(str::to_owned), directory })
    }
}

impl GalaxySource {
    /// Reads the role of a requirement, without its version.
    fn parse(role: &str) -> Result<Self, GalaxyRefusal> {
        if let Some((scheme, rest)) = role.split_once("://") {
            let (is_git, scheme) = match scheme.strip_prefix("git+") {
                Some(scheme) => (true, scheme),
                None => (false, scheme),
            };
            if !["https", "http"].contains(&scheme) {
                return Err(GalaxyRefusal::Scheme);
            }
            check_address(rest)?;
            let address = format!("{scheme}://{rest}");
            return Ok(match is_git || rest.ends_with(".git") {
                true => Self::Git(address),
                false => Self::Archive(address),
            });
        }
        if role.contains([':', '@']) {
            return Err(GalaxyRefusal::Scheme);
        }
        let is_name = role.contains('.') && role.split('.').all(|part| is_word(part, "_-"));
        match is_name && role.len() <= WORD_BYTES_MAX {
            true => Ok(Self::Server(role.to_owned())),
            false => Err(GalaxyRefusal::Name),
        }
    }

    /// Returns the name that `ansible-galaxy` gives the role.
    fn own_name(&self) -> &str {
        match self {
            Self::Server(name) => name,
            Self::Git(address) | Self::Archive(address) => {
                let last = address.rsplit('/').next().unwrap_or_default();
                let last = last.strip_suffix(".git").unwrap_or(last);
                last.strip_suffix(".tar.gz").unwrap_or(last)
            }
        }
    }
}

impl fmt::Display for GalaxySource {
    /// Writes the name or the address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(name) => f.write_str(name),
            Self::Git(address) | Self::Archive(address) => f.write_str(address),
        }
    }
}

/// Checks what follows the scheme of an address: a host, and a path. Which hosts are reached is
/// decided when the role is installed.
fn check_address(rest: &str) -> Result<(), GalaxyRefusal> {
    let is_sign = |sign: u8| sign.is_ascii_alphanumeric() || b"-._~/:[]%+@=&?".contains(&sign);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.contains('@') {
        return Err(GalaxyRefusal::Login);
    }
    let is_usable = rest.len() <= ADDRESS_BYTES_MAX && rest.bytes().all(is_sign);
    if !is_usable || path.is_empty() || host.is_empty() || host.starts_with(['-', ':', '.']) {
        return Err(GalaxyRefusal::Address);
    }
    Ok(())
}

/// Returns whether a text is one word of letters, digits and these signs, which no program takes
/// for an option.
fn is_word(text: &str, signs: &str) -> bool {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || signs.contains(sign);
    (1..=WORD_BYTES_MAX).contains(&text.len())
        && !text.starts_with('-')
        && text.chars().all(is_sign)
}

/// Why a role cannot be installed, whatever a server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GalaxyRefusal {
    /// More than three parts.
    Parts,
    /// The version has other signs than those of versions, branches and tags.
    Version,
    /// The directory is no plain name.
    Directory,
    /// Neither a name on a Galaxy server nor an address.
    Name,
    /// `file://`, `ext::`, `ssh://`, `git@…` and others.
    Scheme,
    /// The address has a user name or a password.
    Login,
    /// The address has no host, no path, or signs that addresses do not have.
    Address,
}

impl std::error::Error for GalaxyRefusal {}

impl fmt::Display for GalaxyRefusal {
    /// Writes why, and what is expected instead.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parts => "it has more parts than role,version,name",
            Self::Version => {
                "its version is not one word of letters, digits and the signs . _ / + -"
            }
            Self::Directory => {
                "the directory that it is placed in is not one word of letters, digits and the \
                 signs . _ -: set \"name\""
            }
            Self::Name => {
                "it is neither namespace.role nor an address: expected a role of the Galaxy \
                 server, git+https://… or the https://… of an archive"
            }
            Self::Scheme => {
                "only https:// and http:// addresses are fetched: local files, git's own \
                 transports and SSH are refused"
            }
            Self::Login => {
                "its address has a user name or a password, which everyone could read: roles are \
                 fetched without an account"
            }
            Self::Address => "its address has no host, no path, or signs that no address has",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        text: &str,
        name: Option<&str>,
    ) -> Result<(String, Option<String>, String), GalaxyRefusal> {
        let found = GalaxyRequirement::new(text, name)?;
        let source = match found.source {
            GalaxySource::Server(name) => format!("server {name}"),
            GalaxySource::Git(address) => format!("git {address}"),
            GalaxySource::Archive(address) => format!("archive {address}"),
        };
        Ok((source, found.version, found.directory))
    }

    /// Z4.6: what users of `ansible-galaxy` write is read as it reads it.
    #[test]
    fn requirements_are_read_as_ansible_galaxy_reads_them() {
        for (text, name, source, version, directory) in [
            ("org.nova", None, "server org.nova", None, "org.nova"),
            ("org.nova", Some("nova"), "server org.nova", None, "nova"),
            ("org.nova,1.2.0", None, "server org.nova", Some("1.2.0"), "org.nova"),
            ("org.nova, v1,nova", None, "server org.nova", Some("v1"), "nova"),
            ("org.nova,,nova", Some("other"), "server org.nova", None, "other"),
            (
                "linux-system.roles.net_work",
                None,
                "server linux-system.roles.net_work",
                None,
                "linux-system.roles.net_work",
            ),
            (
                "git+https://forge.test/org/nova.git,release/2",
                None,
                "git https://forge.test/org/nova.git",
                Some("release/2"),
                "nova",
            ),
            (
                "https://forge.test/org/nova.git",
                None,
                "git https://forge.test/org/nova.git",
                None,
                "nova",
            ),
            ("git+http://10.0.0.1:8080/nova", None, "git http://10.0.0.1:8080/nova", None, "nova"),
            (
                "https://files.test/a/nova-1.tar.gz",
                None,
                "archive https://files.test/a/nova-1.tar.gz",
                None,
                "nova-1",
            ),
        ] {
            let expected = (source.to_owned(), version.map(str::to_owned), directory.to_owned());
            assert_eq!(read(text, name), Ok(expected), "{text}");
        }
    }

    /// Z4.6, X01: nothing of the executor is named by an address, and no program takes a part for
    /// an option.
    #[test]
    fn local_files_transports_accounts_and_options_are_refused() {
        use GalaxyRefusal::*;
        for (refusal, texts) in [
            (
                Scheme,
                "file:///etc/passwd git+file:///srv/x.git git+ext::sh ext::sh git@forge.test:a/b.git ssh://forge.test/b git+ssh://git@forge.test/b git+git@forge.test:b hg+https://forge.test/b ftp://forge.test/b GIT+https://forge.test/b https:forge.test/b C:\\roles",
            ),
            (
                Name,
                "/etc/passwd ./roles/a ../a.b nova -r -r.x a..b .a.b a.b/c --server=x.y a.b;c a.$b",
            ),
            (Login, "https://user:word@forge.test/a.git git+https://token@forge.test/a.git"),
            (
                Address,
                "https:///a.git https://-oProxy/a.git https://forge.test https://forge.test/ https://forge.test/a'b.git https://forge.test/ä https://:80/a",
            ),
            (Version, "a.b,-x a.b,x..y a.b,x^{commit} a.b,a:b a.b,$x a.b,@{u}"),
            (
                Directory,
                "a.b,1,../c a.b,1,.git a.b,1,-x a.b,1,c/d https://forge.test/a.git/ https://forge.test/..git",
            ),
            (Parts, "a.b,1,c,d"),
        ] {
            for text in texts.split(' ') {
                assert_eq!(read(text, None), Err(refusal), "{text}");
            }
        }
        assert_eq!(read("", None), Err(Name));
        assert_eq!(read("git+ext::sh -c id", None), Err(Scheme));
        assert_eq!(read("a b.c", None), Err(Name));
        for name in ["..", ".", "a/b", "-p", "a b", "ä"] {
            assert_eq!(read("a.b", Some(name)), Err(Directory), "{name}");
        }
        assert_eq!(read(&format!("a.{}", "b".repeat(129)), None), Err(Name));
    }
}
