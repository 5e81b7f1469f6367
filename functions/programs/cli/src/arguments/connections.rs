//! The commands about connections and authenticators. Secrets are read from files, never from
//! arguments.

use clap::{Args, Subcommand};
use sluice_operator::api_client::LocalArguments;
use sluice_operator::authenticator::{self, LoadUserInfo};
use sluice_operator::connection;
use std::path::PathBuf;

#[derive(Subcommand)]
pub(crate) enum ConnectionCommand {
    /// Add a connection, or change the given options of an existing one. Secrets are read from
    /// files or standard input, never from arguments
    Add(Box<ConnectionAdd>),
    /// Store a new API token or webhook secret. The new token is used within a minute; the previous
    /// webhook secret stays valid until the next rotation
    Rotate(ConnectionRotate),
    /// Remove a connection and its secrets
    Remove {
        #[command(flatten)]
        local: LocalArguments,
        /// Connection
        name: String,
    },
    /// Show a connection, without its secrets: its address, and whose credentials it uses
    Show {
        #[command(flatten)]
        local: LocalArguments,
        /// Connection
        name: String,
    },
    /// List connections, without their secrets
    List {
        #[command(flatten)]
        local: LocalArguments,
    },
}

#[derive(Args)]
pub(crate) struct ConnectionAdd {
    #[command(flatten)]
    pub(crate) local: LocalArguments,
    /// Name of the connection, as used in the configuration
    pub(crate) name: String,
    /// Driver of the connection [default: github]
    #[arg(long, value_enum)]
    pub(crate) driver: Option<connection::DriverArgument>,
    /// Host name in canonical project names [default: the host of --git-url]
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Address of the API, or of the smtp (`smtps://HOST?from=A&to=B`) or mqtt server [default for
    /// github: https://api.github.com]
    #[arg(long, value_name = "URL")]
    pub(crate) api_url: Option<String>,
    /// Base address of the repositories; a project's path is appended [default for github:
    /// https://github.com]
    #[arg(long, value_name = "URL")]
    pub(crate) git_url: Option<String>,
    /// Login of the token's account, or of the password [default for github: looked up at the
    /// forge]
    #[arg(long)]
    pub(crate) login: Option<String>,
    /// AWS region, for sections and calls that name none
    #[arg(long)]
    pub(crate) region: Option<String>,
    #[command(flatten)]
    pub(crate) aws: ConnectionAws,
    /// File with the secret access key of --access-key-id; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_access_key_file: Option<PathBuf>,
    /// How changes are merged at GitHub; fast-forward needs a token that may push to the branches
    /// despite branch rules [default: unchanged, or merge for a new connection]
    #[arg(long, value_enum)]
    pub(crate) landing: Option<connection::LandingArgument>,
    /// Minutes between two polls of a project at a plain git server [default: unchanged, or 120 for
    /// a new connection]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) poll_minutes: Option<u32>,
    #[command(flatten)]
    pub(crate) secrets: ConnectionSecrets,
}

/// The AWS credentials of a connection to EC2. Without them the launcher's own are used.
#[derive(Args)]
pub(crate) struct ConnectionAws {
    /// Role that the launcher assumes to call EC2 [default: unchanged, or none for a new
    /// connection]
    #[arg(long, value_name = "ARN")]
    role_arn: Option<String>,
    /// External id that the role's trust policy requires
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Access key for EC2, or for assuming the role, in place of the launcher's own credentials
    #[arg(long, value_name = "ID")]
    access_key_id: Option<String>,
    /// Remove the connection's access key and role: the launcher's own credentials are used again
    #[arg(long)]
    ambient_credentials: bool,
}

impl From<ConnectionAws> for connection::AwsOptions {
    /// Converts the options of the command line. Checks nothing.
    fn from(aws: ConnectionAws) -> Self {
        Self {
            access_key_id: aws.access_key_id,
            role_arn: aws.role_arn,
            external_id: aws.external_id,
            reset: match aws.ambient_credentials {
                true => connection::AwsCredentialsReset::ToAmbient,
                false => connection::AwsCredentialsReset::Keep,
            },
        }
    }
}

#[derive(Args)]
pub(crate) struct ConnectionRotate {
    #[command(flatten)]
    pub(crate) local: LocalArguments,
    /// Connection
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) secrets: ConnectionSecrets,
}

/// The files that a connection's secrets are read from; secrets are never arguments.
#[derive(Args)]
pub(crate) struct ConnectionSecrets {
    /// File with the API token or the password; `-` is standard input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the webhook secret; `-` is standard input
    #[arg(long, value_name = "FILE")]
    webhook_secret_file: Option<PathBuf>,
    /// Store the token without checking it at the forge
    #[arg(long)]
    no_check: bool,
}

impl ConnectionSecrets {
    /// Returns the paths of the files of the secrets, and whether the token is checked at the
    /// forge. Opens no file.
    pub(crate) fn read(self) -> (connection::SecretFiles, connection::TokenCheck) {
        let check = if self.no_check {
            connection::TokenCheck::Skipped
        } else {
            connection::TokenCheck::WithForge
        };
        (
            connection::SecretFiles {
                token: self.token_file,
                webhook_secret: self.webhook_secret_file,
                secret_access_key: None,
            },
            check,
        )
    }
}

impl From<ConnectionAdd> for connection::ConnectionChange {
    /// Converts the command line of `sluice connection add` to the change of a connection. Opens no
    /// file and checks nothing.
    fn from(add: ConnectionAdd) -> Self {
        let (secrets, check) = add.secrets.read();
        let secret_access_key = add.secret_access_key_file;
        Self {
            data: add.local.data,
            name: add.name,
            driver: add.driver,
            host: add.host,
            api_url: add.api_url,
            git_url: add.git_url,
            login: add.login,
            region: add.region,
            landing: add.landing,
            poll_minutes: add.poll_minutes,
            aws: add.aws.into(),
            secrets: connection::SecretFiles { secret_access_key, ..secrets },
            check,
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum AuthenticatorCommand {
    /// Add an authenticator, or replace the one of this name. Secrets are read from files or
    /// standard input, never from arguments
    Add(Box<AuthenticatorAdd>),
    /// Remove an authenticator and its secret; its tokens are refused
    Remove {
        #[command(flatten)]
        local: LocalArguments,
        /// Authenticator
        name: String,
    },
    /// List authenticators, without their secrets
    List {
        #[command(flatten)]
        local: LocalArguments,
    },
}

/// The options of an authenticator are those of Zuul's `[auth NAME]` sections.
#[derive(Args)]
pub(crate) struct AuthenticatorAdd {
    #[command(flatten)]
    pub(crate) local: LocalArguments,
    /// Name of the authenticator
    pub(crate) name: String,
    /// How tokens are signed: with a shared secret, an RSA key, or by an OpenID provider
    #[arg(long, value_enum)]
    pub(crate) driver: authenticator::AuthenticatorDriverArgument,
    /// Realm, as users see it [default: the name]
    #[arg(long)]
    pub(crate) realm: Option<String>,
    /// Client for which users log in
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: String,
    /// Audience: the `aud` claim of tokens must have it [default: the client's id]
    #[arg(long, value_name = "ID")]
    pub(crate) audience: Option<String>,
    /// Address at which users log in [default: the issuer]
    #[arg(long, value_name = "URL")]
    pub(crate) authority: Option<String>,
    /// Issuer: the `iss` claim of tokens; with OpenID Connect, the provider's address
    #[arg(long, value_name = "ID")]
    pub(crate) issuer_id: String,
    /// Claim that identifies the user
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    pub(crate) uid_claim: String,
    /// Seconds after its issue for which a token is accepted [default: until it expires]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) max_validity_time: Option<u64>,
    /// Seconds by which the issuer's clock may differ
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub(crate) skew: u64,
    /// Log in with this authenticator on the pages
    #[arg(long)]
    pub(crate) default: bool,
    /// Let the claim `zuul.admin` of tokens make their bearer an administrator of the tenants it
    /// lists
    #[arg(long)]
    pub(crate) allow_authz_override: bool,
    /// File with the shared secret, of at least 32 characters, for hs256; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// File with the issuer's public key in PEM, for rs256
    #[arg(long, value_name = "FILE")]
    pub(crate) public_key_file: Option<PathBuf>,
    /// Address of the provider's keys [default: as its discovery document says]
    #[arg(long, value_name = "URL")]
    pub(crate) keys_url: Option<String>,
    /// What clients request of the provider
    #[arg(long, default_value = "openid profile")]
    pub(crate) scope: String,
    /// Do not read more about the user from the provider; the token says enough
    #[arg(long)]
    pub(crate) no_load_user_info: bool,
}

impl From<AuthenticatorAdd> for authenticator::AuthenticatorOptions {
    /// Converts the command line of `sluice authenticator add`. Opens no file and checks nothing.
    fn from(add: AuthenticatorAdd) -> Self {
        let load_user_info =
            if add.no_load_user_info { LoadUserInfo::No } else { LoadUserInfo::Yes };
        Self {
            data: add.local.data,
            name: add.name,
            driver: add.driver,
            realm: add.realm,
            client_id: add.client_id,
            audience: add.audience,
            authority: add.authority,
            issuer_id: add.issuer_id,
            uid_claim: add.uid_claim,
            max_validity_seconds: add.max_validity_time,
            skew_seconds: add.skew,
            is_default: add.default,
            allows_override: add.allow_authz_override,
            secret_file: add.secret_file,
            public_key_file: add.public_key_file,
            keys_url: add.keys_url,
            scope: add.scope,
            load_user_info,
        }
    }
}
