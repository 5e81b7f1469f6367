//! A function as small as can be, for the tests of the Runtime API: does what its event says.
//! `{"do": "echo"}` answers the event, `fail` fails, `hang` never answers, `who` returns its
//! process and what of its environment is not secret.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Serves calls by the Lambda Runtime API. Fails at once if `REFUSE_TO_START` is set; if `WAITS_AT`
/// names an address, first waits there as [`wait_at`].
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    if std::env::var("REFUSE_TO_START").is_ok() {
        return Err("requested not to start".into());
    }
    if let Ok(gate) = std::env::var("WAITS_AT") {
        wait_at(&gate)?;
    }
    println!("started");
    lambda_runtime::run(service_fn(answer)).await
}

/// Sends the id of this process, as a line, to an address, and waits until that connection is
/// closed.
fn wait_at(gate: &str) -> std::io::Result<()> {
    let mut gate = TcpStream::connect(gate)?;
    writeln!(gate, "{}", std::process::id())?;
    gate.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Does what the field `do` of the event says: `fail` is an error, `hang` never answers, `large`
/// answers 7 MB. `who` answers with the process, the call and some of its environment; an error if
/// a variable that the emulator sets is missing. Anything else, or no `do`, answers with the event.
async fn answer(event: LambdaEvent<Value>) -> Result<Value, Error> {
    let LambdaEvent { payload, context } = event;
    match payload.get("do").and_then(Value::as_str) {
        Some("fail") => Err("requested to fail".into()),
        Some("hang") => {
            println!("hangs in {}", std::process::id());
            std::future::pending().await
        }
        Some("large") => Ok(Value::String("x".repeat(7 * 1024 * 1024))),
        Some("who") => Ok(json!({
            "process": std::process::id(),
            "request": context.request_id,
            "deadline": context.deadline,
            "arn": context.invoked_function_arn,
            "key": std::env::var("AWS_ACCESS_KEY_ID")?,
            "endpoint": std::env::var("AWS_ENDPOINT_URL")?,
            "own": std::env::var("SLUICE_FUNCTION")?,
            "stranger": std::env::var("CARGO").is_ok(),
        })),
        _ => Ok(payload),
    }
}
