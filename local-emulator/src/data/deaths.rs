//! Deliberate kills for tests: at which call, before or after it takes effect, which process is
//! killed with `kill -9`.
//!
//! Every call of every function passes this emulator with its caller's name, so each call is a
//! moment that can be selected. [`DeliberateKill`] is parsed from one line of text:
//!
//! ```text
//! machine after webhook:PutItem:delivery#
//! caller before reporter:PutItem|TransactWriteItems:landing#+"ended"
//! executor after executor:*:build#+"running" 2
//! ```
//!
//! Several lines form a sequence: each kill is armed once the one before has happened.

use super::auth::Principal;
use bytes::Bytes;
use http::Request;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The maximum number of kills in a sequence.
const DEATHS_MAX: usize = 100;

/// One kill: the victim and the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliberateKill {
    /// The victim.
    pub victim: Victim,
    /// Whether before or after the call takes effect.
    pub moment: Moment,
    /// Who calls: a function, `executor` or `operator`.
    pub caller: String,
    /// What is called, for example `PutItem`; empty is anything.
    pub operations: Vec<String>,
    /// Texts that the request's address or body must all contain, with backslashes removed.
    pub texts: Vec<String>,
    /// At which of the calls that fit, from 1. After a call, only calls that succeeded count.
    pub count: u32,
}

/// Who dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// This process, with everything that runs in it.
    Machine,
    /// The processes of the function that calls.
    Caller,
    /// The executor's process.
    Executor,
}

/// The moment of a call at which the kill happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the call takes effect.
    Before,
    /// After the call took effect; the caller gets no response.
    After,
}

/// Why a line could not be parsed as a [`DeliberateKill`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "could not read the death {line:?}: {why}; write `machine|caller|executor before|after CALLER:OPERATION[:TEXT] [COUNT]`, several with `;` between"
)]
pub struct DeathError {
    line: String,
    why: String,
}

impl FromStr for DeliberateKill {
    type Err = DeathError;

    /// Parses a line of the form `machine|caller|executor before|after CALLER:OPERATIONS[:TEXTS]
    /// [COUNT]`. Operations are separated by `|`, or `*` for any; texts by `+`, and all of them
    /// must occur. The count is 1 if it is missing. White space separates the parts, so a text
    /// cannot contain any. Neither caller nor operations need exist.
    fn from_str(line: &str) -> Result<Self, DeathError> {
        let failed = |why: &str| DeathError { line: line.trim().to_owned(), why: why.to_owned() };
        let mut words = line.split_whitespace();
        let victim = match words.next() {
            Some("machine") => Victim::Machine,
            Some("caller") => Victim::Caller,
            Some("executor") => Victim::Executor,
            _ => return Err(failed("it does not begin with machine, caller or executor")),
        };
        let moment = match words.next() {
            Some("before") => Moment::Before,
            Some("after") => Moment::After,
            _ => return Err(failed("its second word is not before or after")),
        };
        let mut call = words.next().ok_or_else(|| failed("it names no call"))?.splitn(3, ':');
        let caller = call.next().unwrap_or_default().to_owned();
        let operations = call
            .next()
            .filter(|text| !text.is_empty())
            .ok_or_else(|| failed("it names no operation"))?;
        let operations = match operations {
            "*" => Vec::new(),
            some => some.split('|').map(str::to_owned).collect(),
        };
        let texts = call.next().unwrap_or_default().split('+').filter(|text| !text.is_empty());
        let texts = texts.map(str::to_owned).collect();
        let count = match words.next() {
            None => 1,
            Some(word) => word
                .parse()
                .ok()
                .filter(|count| *count > 0)
                .ok_or_else(|| failed("its last word is not a number from 1"))?,
        };
        if words.next().is_some() {
            return Err(failed("it has a word too many"));
        }
        Ok(Self { victim, moment, caller, operations, texts, count })
    }
}

impl fmt::Display for DeliberateKill {
    /// Writes the kill as a line that can be parsed, always with its texts and count.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let victim = match self.victim {
            Victim::Machine => "machine",
            Victim::Caller => "caller",
            Victim::Executor => "executor",
        };
        let moment = if self.moment == Moment::Before { "before" } else { "after" };
        let operations =
            if self.operations.is_empty() { "*".to_owned() } else { self.operations.join("|") };
        write!(
            to,
            "{victim} {moment} {}:{operations}:{} {}",
            self.caller,
            self.texts.join("+"),
            self.count
        )
    }
}

/// Parses a sequence of deliberate kills, separated by `;` or line feeds; empty ones are skipped.
/// More than 100 kills, or one that cannot be parsed, is an error.
///
/// # Errors
/// [`DeathError`] names the first that cannot be read.
pub fn read_deaths(text: &str) -> Result<Vec<DeliberateKill>, DeathError> {
    let lines: Vec<&str> = text.split([';', '\n']).filter(|line| !line.trim().is_empty()).collect();
    if lines.len() > DEATHS_MAX {
        let why = format!("there are {} of them, and at most {DEATHS_MAX} are tried", lines.len());
        return Err(DeathError { line: String::new(), why });
    }
    lines.into_iter().map(str::parse).collect()
}

impl DeliberateKill {
    /// Returns whether a call is by this kill's caller, of one of its operations, and contains all
    /// its texts in its body (without backslashes) or its address. The moment and the count are not
    /// considered.
    fn fits(&self, principal: &Principal, operation: &str, request: &Request<Bytes>) -> bool {
        if self.caller != principal.as_str() {
            return false;
        }
        if !self.operations.is_empty() && !self.operations.iter().any(|one| one == operation) {
            return false;
        }
        if self.texts.is_empty() {
            return true;
        }
        let said = String::from_utf8_lossy(request.body()).replace('\\', "");
        let address = request.uri().to_string();
        self.texts.iter().all(|text| said.contains(text) || address.contains(text))
    }
}

/// Kills the processes of a function, given by its id, with SIGKILL.
pub type Kill = Arc<dyn Fn(&str) + Send + Sync>;

/// The sequence of kills of one emulator, and the functions that kill.
#[derive(Default)]
pub struct Deaths {
    waiting: Mutex<VecDeque<DeliberateKill>>,
    /// Calls that fitted the armed death.
    fitted: AtomicU32,
    caller: RwLock<Option<Kill>>,
    executor: RwLock<Option<Kill>>,
}

impl Deaths {
    /// Returns a sequence of kills of which the first is armed.
    #[must_use]
    pub fn new(sequence: Vec<DeliberateKill>) -> Self {
        Self { waiting: Mutex::new(sequence.into()), ..Self::default() }
    }

    /// Returns whether a kill of this kind of victim is still in the sequence, armed or not.
    #[must_use]
    pub fn expects(&self, victim: Victim) -> bool {
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .any(|death| death.victim == victim)
    }

    /// Sets the action that kills a function's processes. Without it such a kill is logged as an
    /// error and kills nothing.
    pub fn set_caller(&self, kill: Kill) {
        *self.caller.write().unwrap_or_else(PoisonError::into_inner) = Some(kill);
    }

    /// Sets the action that kills the executor. Without it such a kill is logged as an error and
    /// kills nothing.
    pub fn set_executor(&self, kill: Kill) {
        *self.executor.write().unwrap_or_else(PoisonError::into_inner) = Some(kill);
    }

    /// Counts this moment of a call if the armed kill selects it. Once the count of that kill is
    /// reached, kills its victim and arms the next kill. Returns whether the call must not be
    /// answered, because its own caller was to be killed (even if no action to kill it is set);
    /// false if nothing is due. Does not return if the emulator itself is killed. With
    /// `Moment::After` it is to be called for calls that succeeded only.
    #[must_use]
    pub fn strike(
        &self,
        moment: Moment,
        principal: &Principal,
        operation: &str,
        request: &Request<Bytes>,
    ) -> bool {
        let Some(death) = self.due(moment, principal, operation, request) else { return false };
        // Who tries it finds it by this line.
        tracing::warn!(%death, "killing, as asked");
        let kill = match death.victim {
            Victim::Machine => {
                let own = rustix::process::getpid();
                if let Err(error) =
                    rustix::process::kill_process(own, rustix::process::Signal::KILL)
                {
                    tracing::error!(%error, "this process could not kill itself");
                }
                return true;
            }
            Victim::Caller => &self.caller,
            Victim::Executor => &self.executor,
        };
        let kill = kill.read().unwrap_or_else(PoisonError::into_inner).clone();
        match kill {
            Some(kill) => kill(principal.as_str()),
            None => tracing::error!(%death, "there is no process of its own to kill"),
        }
        // A dead caller gets no response. The death of an executor does not affect other callers.
        death.victim == Victim::Caller
            || principal.as_str() == crate::template::ExecutorPlan::PRINCIPAL
    }

    /// Counts this call if it fits the armed kill, which is the first of the sequence, and its
    /// moment. Removes and returns that kill once its count is reached; otherwise `None`.
    fn due(
        &self,
        moment: Moment,
        principal: &Principal,
        operation: &str,
        request: &Request<Bytes>,
    ) -> Option<DeliberateKill> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let armed = waiting.front()?;
        if armed.moment != moment || !armed.fits(principal, operation, request) {
            return None;
        }
        if self.fitted.fetch_add(1, Ordering::SeqCst) + 1 < armed.count {
            return None;
        }
        self.fitted.store(0, Ordering::SeqCst);
        waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(body: &str) -> Request<Bytes> {
        Request::builder().uri("/sluice-objects/logs/1").body(Bytes::from(body.to_owned())).unwrap()
    }

    /// Reads back as it was written.
    #[test]
    fn a_death_is_a_line_of_text() {
        let line = "caller before reporter:PutItem|TransactWriteItems:landing#+\"ended\" 2";
        let death: DeliberateKill = line.parse().unwrap();
        assert_eq!(death.operations, ["PutItem", "TransactWriteItems"]);
        assert_eq!((death.texts.len(), death.count, death.victim), (2, 2, Victim::Caller));
        assert_eq!(death.to_string(), line);
        let two =
            read_deaths("machine after webhook:PutItem ; executor before executor:*;").unwrap();
        assert!(two.len() == 2 && two[1].operations.is_empty() && two[0].texts.is_empty());
    }

    #[test]
    fn what_is_no_death_says_what_one_looks_like() {
        for (line, why) in [
            ("dog after gate:PutItem", "does not begin with"),
            ("machine at gate:PutItem", "second word"),
            ("machine after", "names no call"),
            ("machine after gate", "no operation"),
            ("machine after gate:PutItem none", "number from 1"),
            ("machine after gate:PutItem 0", "number from 1"),
            ("machine after gate:PutItem 1 2", "word too many"),
        ] {
            let error = line.parse::<DeliberateKill>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("before|after"), "{line}: {error}");
        }
    }

    /// Each is armed once the one before it has happened, counts only calls that fit, and happens
    /// once.
    #[test]
    fn deaths_happen_one_after_the_other() {
        let killed: Arc<Mutex<Vec<String>>> = Arc::default();
        let kill: Kill = {
            let killed = killed.clone();
            Arc::new(move |whom| killed.lock().unwrap().push(whom.to_owned()))
        };
        let deaths = Deaths::new(
            read_deaths("caller after gate:PutItem:item#+\"key\":\"a\" 2; caller before gate:*")
                .unwrap(),
        );
        deaths.set_caller(kill);
        let gate = Principal::new("gate");
        let fits = call(r#"{"Item":{"pk":{"S":"item#1"},"body":{"S":"{\"key\":\"a\"}"}}}"#);
        assert!(
            !deaths.strike(Moment::Before, &gate, "PutItem", &fits),
            "the second is not armed yet"
        );
        assert!(!deaths.strike(Moment::After, &gate, "PutItem", &fits), "only at the second call");
        assert!(!deaths.strike(Moment::After, &Principal::new("intake"), "PutItem", &fits));
        assert!(!deaths.strike(Moment::After, &gate, "DeleteItem", &fits));
        assert!(
            !deaths.strike(Moment::After, &gate, "PutItem", &call("item#1")),
            "all texts must be there"
        );
        assert!(killed.lock().unwrap().is_empty() && deaths.expects(Victim::Caller));
        assert!(deaths.strike(Moment::After, &gate, "PutItem", &fits));
        assert!(deaths.strike(Moment::Before, &gate, "GetItem", &call("")));
        assert!(!deaths.strike(Moment::Before, &gate, "GetItem", &call("")), "no kill is left");
        assert_eq!(*killed.lock().unwrap(), ["gate", "gate"]);
        assert!(!deaths.expects(Victim::Caller));
    }
}
