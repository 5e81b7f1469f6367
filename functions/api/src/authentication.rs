//! Who makes a request: the bearer token of a request becomes a principal, or a reason to refuse
//! the request (C2.2).
//!
//! Authenticators are read again after [`CACHE_SECONDS`], so a removed one is accepted for no
//! longer. The keys of an OpenID provider are cached for an hour, and tokens that name unknown keys
//! do not multiply requests to it ([`sluice_auth::IssuerKeys`]).

use crate::Api;
use crate::issuer_keys::{IssuerDocuments, read_keys};
use crate::reply::ErrorResponse;
use futures::lock::Mutex;
use http::{HeaderMap, header};
use sluice_auth::{
    Authenticator, AuthenticatorSet, BearerToken, IssuerKeys, KeyLookup, TokenBearer, TokenError,
    UnverifiedPrincipal,
};
use sluice_keys::{Secret, SignatureKey};
use sluice_model::Timestamp;
use sluice_records::authenticators::{self, AuthenticatorsFile, StoredAuthenticator};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Seconds for which authenticators and access rules are used without being read again.
pub(crate) const CACHE_SECONDS: u64 = 15;

/// The realm that a refusal names when there is no authenticator.
const NO_REALM: &str = "sluice";

/// Who makes a request.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// A request without a token.
    Anonymous,
    /// The user of a verified token.
    Bearer(Box<TokenBearer>),
}

impl Caller {
    /// Returns the principal; `None` without a token.
    pub(crate) fn principal(&self) -> Option<&TokenBearer> {
        match self {
            Self::Anonymous => None,
            Self::Bearer(principal) => Some(principal),
        }
    }
}

/// The configured authenticators with their keys.
#[derive(Debug, Default)]
pub(crate) struct KnownAuthenticators {
    /// The authenticators whose keys can be used, by name.
    all: BTreeMap<String, KnownAuthenticator>,
    /// What was read, to open secrets again only after a change.
    tag: Option<String>,
    /// Whether the stored ones exclude each other, so that none is used.
    is_refused: bool,
}

#[derive(Debug)]
struct KnownAuthenticator {
    settings: Authenticator,
    /// The key; `None` if the issuer publishes its keys.
    key: Option<SignatureKey>,
}

impl KnownAuthenticators {
    /// Returns whether none is configured, so that nothing can be changed over the API.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && !self.is_refused
    }

    /// Returns their settings, by name.
    pub(crate) fn settings(&self) -> impl Iterator<Item = &Authenticator> {
        self.all.values().map(|known| &known.settings)
    }

    /// Returns the realm in which the pages log in: that of the default authenticator. `None` if
    /// none is the default.
    pub(crate) fn default_realm(&self) -> Option<&str> {
        let default = self.settings().find(|settings| settings.is_default);
        default.map(|settings| settings.realm.as_str())
    }

    /// Returns the realm that a refusal names: the default one, or that of the first authenticator
    /// by name.
    fn refusing_realm(&self) -> &str {
        let first = self.settings().next().map(|settings| settings.realm.as_str());
        self.default_realm().or(first).unwrap_or(NO_REALM)
    }
}

/// The cached authenticators and the keys of their issuers.
pub(crate) struct Authentication {
    documents: Arc<dyn IssuerDocuments>,
    known: Mutex<Option<(Timestamp, Arc<KnownAuthenticators>)>>,
    /// The keys of each issuer. Each is locked while they are read, so that requests that come
    /// meanwhile wait for the same answer, and no request for another issuer.
    issuers: Mutex<BTreeMap<String, Arc<Mutex<IssuerKeys>>>>,
}

impl Authentication {
    /// Creates it without cached values. `documents` reads the documents of OpenID providers.
    pub(crate) fn new(documents: Arc<dyn IssuerDocuments>) -> Self {
        Self { documents, known: Mutex::default(), issuers: Mutex::default() }
    }

    /// Returns the authenticators, at most [`CACHE_SECONDS`] old. One whose key cannot be used is
    /// left out, with an error in the log.
    pub(crate) async fn known(
        &self,
        ports: &Ports,
    ) -> Result<Arc<KnownAuthenticators>, ErrorResponse> {
        let now = ports.clock.now();
        let mut cached = self.known.lock().await;
        if let Some((at, known)) = &*cached
            && now.since(*at) < CACHE_SECONDS * 1_000
        {
            return Ok(known.clone());
        }
        let loaded = authenticators::load(ports).await?;
        let known = match cached.take() {
            Some((_, known)) if known.tag == loaded.tag => known,
            _ => Arc::new(open(ports, loaded.file, loaded.tag).await?),
        };
        *cached = Some((now, known.clone()));
        Ok(known)
    }

    /// Returns the key with which a token must be signed.
    async fn key_of(
        &self,
        ports: &Ports,
        known: &KnownAuthenticator,
        key_id: Option<&str>,
    ) -> Result<SignatureKey, KeyError> {
        if let Some(key) = &known.key {
            return Ok(key.clone());
        }
        let settings = &known.settings;
        let of_issuer =
            self.issuers.lock().await.entry(settings.issuer_id.clone()).or_default().clone();
        let mut keys = of_issuer.lock().await;
        let now = ports.clock.now();
        let mut found = keys.look_up(key_id, now);
        if found == KeyLookup::Read {
            match read_keys(&*self.documents, settings).await {
                Ok(read) => keys.replace(read, now),
                Err(error) => {
                    tracing::error!(authenticator = settings.name, %error, "could not read the keys of an OpenID provider");
                }
            }
            found = keys.look_up(key_id, now);
        }
        match found {
            KeyLookup::Found(key) => SignatureKey::public_from_numbers(&key.modulus, &key.exponent)
                .ok_or(KeyError::Refused(TokenError::UnknownKey)),
            KeyLookup::Unknown => Err(KeyError::Refused(TokenError::UnknownKey)),
            KeyLookup::Read | KeyLookup::Unavailable => Err(KeyError::Unavailable),
        }
    }
}

/// Why there is no key for a token.
enum KeyError {
    Refused(TokenError),
    Unavailable,
}

/// Opens the keys of the authenticators. One whose key is missing or cannot be used is left out,
/// with an error in the log. An error if a secret cannot be opened.
async fn open(
    ports: &Ports,
    file: AuthenticatorsFile,
    tag: Option<String>,
) -> Result<KnownAuthenticators, PortError> {
    let mut all = BTreeMap::new();
    for (name, stored) in file.0 {
        let secret = authenticators::open_secret(ports, &stored).await?;
        match key(&stored, secret) {
            Ok(key) => {
                all.insert(name, KnownAuthenticator { settings: stored.settings, key });
            }
            Err(why) => tracing::error!(
                authenticator = name,
                why,
                "the authenticator is skipped; add it again with `sluice authenticator add`"
            ),
        }
    }
    let set = AuthenticatorSet::new(
        all.values().map(|known: &KnownAuthenticator| known.settings.clone()).collect(),
    );
    if let Err(error) = set {
        tracing::error!(%error, "no token is accepted; repair the authenticators with `sluice authenticator`");
        return Ok(KnownAuthenticators { all: BTreeMap::new(), tag, is_refused: true });
    }
    Ok(KnownAuthenticators { all, tag, is_refused: false })
}

/// Returns the key of an authenticator, `None` if its issuer publishes the keys; or why it has none
/// that can be used.
fn key(
    stored: &StoredAuthenticator,
    secret: Option<String>,
) -> Result<Option<SignatureKey>, String> {
    use sluice_auth::AuthenticatorDriver as Driver;
    let key = match stored.settings.driver {
        Driver::OpenIDConnect { .. } => return Ok(None),
        Driver::Hs256 => {
            let secret = Secret::from(secret.ok_or("its secret is missing")?);
            SignatureKey::shared(&secret)
        }
        Driver::Rs256 => SignatureKey::public_from_pem(
            stored.public_key.as_deref().ok_or("its public key is missing")?,
        ),
    };
    key.map(Some).map_err(|error| error.to_string())
}

/// Returns who makes a request by its `Authorization` header. A request without one is anonymous,
/// and so is every request if no authenticator is configured. The error is 401 for a header of
/// another form and for a token that is refused, and 503 if the keys of its issuer cannot be read.
pub(crate) async fn caller(api: &Api, headers: &HeaderMap) -> Result<Caller, ErrorResponse> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(Caller::Anonymous) };
    let known = api.authentication.known(&api.ports).await?;
    if known.is_empty() {
        return Ok(Caller::Anonymous);
    }
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    let token = text
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim_matches(' '));
    let Some(token) = token else {
        return Err(unauthorized(
            &known,
            "InvalidAuthFormat",
            "the header Authorization must be: Bearer TOKEN",
        ));
    };
    match verify(api, &known, token).await {
        Ok(principal) => Ok(Caller::Bearer(Box::new(principal))),
        Err(KeyError::Refused(error)) => {
            tracing::info!(error = error.name(), "a token was refused: {error}");
            Err(unauthorized(&known, error.name(), &error.to_string()))
        }
        Err(KeyError::Unavailable) => Err(ErrorResponse::Unavailable {
            detail: "the keys of the token's issuer could not be read".to_owned(),
        }),
    }
}

/// Returns the principal of a token whose claims and signature are right.
async fn verify(
    api: &Api,
    known: &KnownAuthenticators,
    token: &str,
) -> Result<TokenBearer, KeyError> {
    let token = BearerToken::parse(token).map_err(KeyError::Refused)?;
    let now = api.ports.clock.now();
    // Claims come first: a token that is refused anyway causes no request to its issuer.
    let checked: UnverifiedPrincipal<'_> =
        token.check(known.settings(), now).map_err(KeyError::Refused)?;
    let authenticator = known.all.get(&checked.authenticator().name);
    let authenticator = authenticator.ok_or(KeyError::Refused(TokenError::UnknownIssuer))?;
    let key = api.authentication.key_of(&api.ports, authenticator, checked.key_id()).await?;
    checked.verify(|bytes| key.verifies(bytes.message, bytes.signature)).map_err(KeyError::Refused)
}

/// Returns the error with status 401 for a request that needs a token and has none.
pub(crate) async fn missing_token(api: &Api) -> ErrorResponse {
    match api.authentication.known(&api.ports).await {
        Ok(known) => unauthorized(
            &known,
            "MissingAuthError",
            "this needs a token: Authorization: Bearer TOKEN",
        ),
        Err(error) => error,
    }
}

/// Returns the error with status 401, in the default realm.
fn unauthorized(
    known: &KnownAuthenticators,
    error: &'static str,
    description: &str,
) -> ErrorResponse {
    ErrorResponse::Unauthorized {
        error,
        description: description.to_owned(),
        realm: known.refusing_realm().to_owned(),
    }
}
