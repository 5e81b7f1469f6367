//! DynamoDB: JSON 1.0 over the `dynoxide` engine on disk, with the policies, faults and unit counts
//! around it.
//!
//! The engine enforces AWS's limits (400 KB an item, 100 items and 4 MB a transaction, 25 writes
//! and 100 reads a batch, 1 MB a page) and counts capacity. What it never does by itself, lose a
//! race between transactions, throttle, show an index that lags, is added here. PartiQL, streams
//! and vectors are refused as unknown operations. Difference from AWS: a transaction's
//! `ClientRequestToken` is remembered for ten minutes but not over a restart.

mod lagging;
mod request;

use std::path::Path;
use std::sync::Arc;

use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::account::Account;
use super::auth::Caller;
use super::faults::{CallFaults, InjectedError};
use super::store::{Durability, StoreError};
use super::wire::{Problem, Usage};

use lagging::Lagging;
use request::Request;

/// Content type of requests and answers.
pub const CONTENT_TYPE: &str = "application/x-amz-json-1.0";
/// What `X-Amz-Target` begins with.
pub const TARGET_PREFIX: &str = "DynamoDB_20120810.";

const NAMESPACE: &str = "com.amazonaws.dynamodb.v20120810#";

/// The tables of one data directory.
pub struct Dynamo {
    database: Database,
    account: Account,
    faults: Arc<CallFaults>,
    lagging: Lagging,
}

/// An answer and what it used.
pub(super) type Answer = (Result<String, Problem>, Usage);

impl Dynamo {
    /// Opens or creates the tables in `directory`, in the file `dynamodb.sqlite`. `durability` says
    /// whether commits wait for the disk. `faults` says how far indexes lag.
    ///
    /// # Errors
    /// [`StoreError`] when the directory or the database in it cannot be used.
    pub fn open(
        directory: &Path,
        account: Account,
        faults: Arc<CallFaults>,
        durability: Durability,
    ) -> Result<Self, StoreError> {
        std::fs::create_dir_all(directory).map_err(StoreError::file("create", directory))?;
        let path = directory.join("dynamodb.sqlite");
        let engine = |attempt| {
            let path = path.clone();
            move |error: DynoxideError| StoreError::Engine { attempt, path, why: error.to_string() }
        };
        let database = Database::new(&path.to_string_lossy()).map_err(engine("open"))?;
        if durability == Durability::ProcessDeath {
            // The engine commits to a write-ahead log and waits for the disk each time. This is its
            // own way to set SQLite's `synchronous = NORMAL`: the log is written but not waited
            // for, which the death of the process does not undo.
            database.disable_bulk_loading().map_err(engine("tune"))?;
        }
        Ok(Self { database, account, faults, lagging: Lagging::default() })
    }

    /// Creates a table if it does not exist, and returns its description. `definition` is a
    /// `CreateTable` request; an existing table that differs from it is not changed, and its
    /// description shows the difference. Expiry by `ttl_attribute`, which holds epoch seconds, is
    /// switched on unless expiry is on already.
    ///
    /// # Errors
    /// Returns the [`Problem`] that DynamoDB would return. A table that differs is not changed; its
    /// description shows the difference.
    pub fn ensure_table(
        &self,
        definition: &Value,
        ttl_attribute: Option<&str>,
    ) -> Result<Value, Problem> {
        let name = json!({ "TableName": definition["TableName"] });
        match self.dispatch(&self.database, "CreateTable", definition) {
            Err(problem) if !problem.kind.ends_with("ResourceInUseException") => {
                return Err(problem);
            }
            _ => {}
        }
        let ttl = self.dispatch(&self.database, "DescribeTimeToLive", &name)?;
        let enabled = ttl["TimeToLiveDescription"]["TimeToLiveStatus"] == "ENABLED";
        if let Some(attribute) = ttl_attribute.filter(|_| !enabled) {
            let specification = json!({ "AttributeName": attribute, "Enabled": true });
            let request = json!({ "TableName": definition["TableName"], "TimeToLiveSpecification": specification });
            self.dispatch(&self.database, "UpdateTimeToLive", &request)?;
        }
        let mut described = self.dispatch(&self.database, "DescribeTable", &name)?;
        Ok(described["Table"].take())
    }

    /// Deletes the items of all tables whose TTL attribute is in the past and returns their number;
    /// AWS does so within days. Nothing calls this by itself.
    ///
    /// # Errors
    /// The engine's own error.
    pub fn sweep_ttl(&self) -> Result<usize, DynoxideError> {
        self.database.sweep_ttl()
    }

    /// Answers one call to DynamoDB and returns what it used, which is one billed request even for
    /// an error. Blocks on the disk. Faults are applied by the caller.
    pub(super) fn call(&self, operation: &str, body: &[u8], caller: &Caller) -> Answer {
        let mut usage = Usage { billed_requests: 1, ..Usage::default() };
        let answer = self.answer(operation, body, caller, &mut usage);
        (answer, usage)
    }

    /// Checks the caller's permissions, runs one operation and returns the body of the response;
    /// queries and scans of an index see the copy that lags. Adds the units that it consumed to
    /// `usage`. An error if the body is no JSON object, a policy denies any part of it, or DynamoDB
    /// would refuse it.
    fn answer(
        &self,
        operation: &str,
        body: &[u8],
        caller: &Caller,
        usage: &mut Usage,
    ) -> Result<String, Problem> {
        let parsed: Value = serde_json::from_slice(body).map_err(|_| serialization())?;
        let Value::Object(mut members) = parsed else {
            return Err(serialization());
        };
        let request = Request { operation, members: &members };
        for (action, resource) in request.actions(&self.account) {
            caller.check(action, &resource).map_err(|denied| {
                Problem::new(
                    400,
                    "com.amazon.coral.service#AccessDeniedException",
                    denied.to_string(),
                )
            })?;
        }
        // Each item that is written is asked for by its partition as well, as DynamoDB asks with
        // `dynamodb:LeadingKeys`.
        for (action, resource, partition) in request.written(&self.account) {
            caller.check_with(action, &resource, &[("dynamodb:LeadingKeys", &partition)]).map_err(
                |denied| {
                    Problem::new(
                        400,
                        "com.amazon.coral.service#AccessDeniedException",
                        denied.to_string(),
                    )
                },
            )?;
        }
        if request.reads_index() {
            let table = request.table().to_owned();
            self.lagging.read_index(&self.database, self.faults.index_lag(), &table, |database| {
                self.run(database, operation, members.clone(), usage)
            })
        } else {
            let (touched, table) = (request.writes(), request.table().to_owned());
            let asked = members.insert("ReturnConsumedCapacity".to_owned(), json!("INDEXES"));
            let result =
                self.lagging.write(&self.database, self.faults.index_lag(), touched, || {
                    self.dispatch(&self.database, operation, &Value::Object(members.clone()))
                });
            if operation == "DeleteTable" && result.is_ok() {
                self.lagging.forget(&table);
            }
            settle(result, asked, usage, operation, &members)
        }
    }

    /// Runs one operation on `database`, without checking permissions, and returns the body of the
    /// response; adds its consumed capacity to `usage`. The response contains the capacity only if
    /// the request asks for it.
    fn run(
        &self,
        database: &Database,
        operation: &str,
        mut members: Map<String, Value>,
        usage: &mut Usage,
    ) -> Result<String, Problem> {
        let asked = members.insert("ReturnConsumedCapacity".to_owned(), json!("INDEXES"));
        let result = self.dispatch(database, operation, &Value::Object(members.clone()));
        settle(result, asked, usage, operation, &members)
    }

    /// Passes an operation to `database` and returns its response; an error for an operation that
    /// the engine does not have. Neither permissions nor lags are considered.
    fn dispatch(
        &self,
        database: &Database,
        operation: &str,
        request: &Value,
    ) -> Result<Value, Problem> {
        let db = database;
        match operation {
            "CreateTable" => run(request, |r| db.create_table(r)),
            "DeleteTable" => run(request, |r| db.delete_table(r)),
            "DescribeTable" => run(request, |r| db.describe_table(r)),
            "UpdateTable" => run(request, |r| db.update_table(r)),
            "ListTables" => run(request, |r| db.list_tables(r)),
            "UpdateTimeToLive" => run(request, |r| db.update_time_to_live(r)),
            "DescribeTimeToLive" => run(request, |r| db.describe_time_to_live(r)),
            "TagResource" => run(request, |r| db.tag_resource(r)),
            "ListTagsOfResource" => run(request, |r| db.list_tags_of_resource(r)),
            "PutItem" => run(request, |r| db.put_item(r)),
            "GetItem" => run(request, |r| db.get_item(r)),
            "DeleteItem" => run(request, |r| db.delete_item(r)),
            "UpdateItem" => run(request, |r| db.update_item(r)),
            "Query" => run(request, |r| db.query(r)),
            "Scan" => run(request, |r| db.scan(r)),
            "BatchGetItem" => run(request, |r| db.batch_get_item(r)),
            "BatchWriteItem" => run(request, |r| db.batch_write_item(r)),
            "TransactWriteItems" => run(request, |r| db.transact_write_items(r)),
            "TransactGetItems" => run(request, |r| db.transact_get_items(r)),
            _ => Err(Problem::new(400, "com.amazon.coral.service#UnknownOperationException", "")),
        }
    }
}

/// Returns an injected failure in DynamoDB's form. A conflict gives a transaction a cancellation
/// with a reason for each of its parts, of which the first has the conflict; other operations get a
/// conflict of their own. Failures that DynamoDB does not have become internal errors.
pub(super) fn injected(failure: &InjectedError, operation: &str, body: &[u8]) -> Problem {
    match failure {
        InjectedError::Throttled => Problem::new(
            400,
            format!("{NAMESPACE}ProvisionedThroughputExceededException"),
            "The level of configured provisioned throughput for the table was exceeded.",
        ),
        InjectedError::TransactionConflict if operation.starts_with("Transact") => {
            let parts = serde_json::from_slice::<Value>(body)
                .ok()
                .and_then(|v| v.get("TransactItems").and_then(Value::as_array).map(Vec::len))
                .unwrap_or(1);
            let mut reasons = vec![json!({"Code": "None"}); parts];
            if let Some(first) = reasons.first_mut() {
                *first = json!({"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"});
            }
            let mut problem = Problem::new(
                400,
                format!("{NAMESPACE}TransactionCanceledException"),
                "Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict]",
            );
            problem.more.insert("CancellationReasons".to_owned(), Value::Array(reasons));
            problem
        }
        InjectedError::TransactionConflict => Problem::new(
            400,
            format!("{NAMESPACE}TransactionConflictException"),
            "Transaction is ongoing for the item",
        ),
        InjectedError::Internal
        | InjectedError::ConditionalConflict
        | InjectedError::ConnectionLost => {
            Problem::new(500, format!("{NAMESPACE}InternalServerError"), "Internal server error")
        }
    }
}

/// Decodes a request, passes it to `act` and encodes the response as JSON. An error in DynamoDB's
/// form if the request cannot be decoded or `act` fails.
fn run<I, O>(request: &Value, act: impl FnOnce(I) -> dynoxide::Result<O>) -> Result<Value, Problem>
where
    I: DeserializeOwned,
    O: Serialize,
{
    // From text, not from the value: the engine's own readers tell apart what only the text shows.
    let input = serde_json::from_str(&request.to_string())
        .map_err(|error| unreadable(&error.to_string()))?;
    let output = act(input).map_err(|error| problem(&error))?;
    serde_json::to_value(&output).map_err(|error| {
        Problem::new(500, format!("{NAMESPACE}InternalServerError"), error.to_string())
    })
}

/// Converts an error of the database engine to DynamoDB's form, with the additional fields that it
/// has there, such as the reasons of a cancellation.
fn problem(error: &DynoxideError) -> Problem {
    let mut problem = Problem::new(error.status_code(), error.error_type(), error.to_string());
    // The engine writes bodies of its own for errors with items and reasons; they are taken over
    // whole.
    if let Ok(Value::Object(mut body)) = serde_json::from_str::<Value>(&error.to_json()) {
        body.remove("__type");
        body.remove("message");
        *problem.more = body;
    }
    problem
}

/// Returns the error for a request that cannot be decoded, in the form that DynamoDB has for the
/// mistake: a `ValidationException` for a missing or invalid member, otherwise a
/// `SerializationException`. `message` is the decoder's.
fn unreadable(message: &str) -> Problem {
    let text = message.split(" at line ").next().unwrap_or(message);
    for marker in ["VALIDATION_REQUEST:", "VALIDATION_AS_READ:", "VALIDATION:"] {
        if let Some(text) = text.strip_prefix(marker) {
            return Problem::new(400, "com.amazon.coral.validate#ValidationException", text);
        }
    }
    let validation = ["missing field", "unknown variant", "invalid type: null", "AttributeValue"];
    if validation.iter().any(|sign| text.contains(sign)) {
        return Problem::new(400, "com.amazon.coral.validate#ValidationException", text);
    }
    Problem::new(
        400,
        "com.amazon.coral.service#SerializationException",
        text.trim_start_matches("SERIALIZATION:"),
    )
}

/// Returns the error for a request body that is not a JSON object.
fn serialization() -> Problem {
    Problem::new(
        400,
        "com.amazon.coral.service#SerializationException",
        "The request body is not a JSON object",
    )
}

/// Returns the body of the response and adds the consumed capacity that the engine reports to
/// `usage`. Removes that capacity from the response as far as the caller did not request it;
/// `asked` is the caller's `ReturnConsumedCapacity`. Errors are returned as they are; for a failed
/// condition or a cancelled transaction an estimate is added to `usage`. `members` are those of the
/// request.
fn settle(
    result: Result<Value, Problem>,
    asked: Option<Value>,
    usage: &mut Usage,
    operation: &str,
    members: &Map<String, Value>,
) -> Result<String, Problem> {
    let mut answer = match result {
        Ok(answer) => answer,
        Err(problem) => {
            // AWS bills a write whose condition failed as if it had been made.
            if problem.kind.ends_with("ConditionalCheckFailedException")
                || problem.kind.ends_with("TransactionCanceledException")
            {
                usage.write_units += Request { operation, members }.estimated_write_units();
            }
            return Err(problem);
        }
    };
    let writes =
        operation.contains("Write") || matches!(operation, "PutItem" | "UpdateItem" | "DeleteItem");
    if let Some(consumed) = answer.get("ConsumedCapacity") {
        let units = match consumed {
            Value::Array(tables) => tables.iter().map(total_units).sum(),
            one => total_units(one),
        };
        if writes {
            usage.write_units += units;
        } else {
            usage.read_units += units;
        }
    }
    match asked.as_ref().and_then(Value::as_str) {
        Some("INDEXES") => {}
        Some("TOTAL") => keep_total(&mut answer),
        _ => {
            if let Value::Object(members) = &mut answer {
                members.remove("ConsumedCapacity");
            }
        }
    }
    Ok(answer.to_string())
}

/// Returns the total of consumed capacity units for one table, indexes included; 0 if none is
/// reported.
fn total_units(consumed: &Value) -> f64 {
    consumed.get("CapacityUnits").and_then(Value::as_f64).unwrap_or_default()
}

/// Reduces the consumed capacity in a response to the table and its total; does nothing if there is
/// none.
fn keep_total(answer: &mut Value) {
    let strip = |consumed: &mut Value| {
        if let Value::Object(members) = consumed {
            members.retain(|name, _| matches!(name.as_str(), "TableName" | "CapacityUnits"));
        }
    };
    match answer.get_mut("ConsumedCapacity") {
        Some(Value::Array(tables)) => tables.iter_mut().for_each(strip),
        Some(one) => strip(one),
        None => {}
    }
}
