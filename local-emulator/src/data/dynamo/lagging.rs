//! Global secondary indexes that lag: while a lag is set, they are read from a copy of the tables
//! that follows it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dynoxide::Database;
use serde_json::{Map, Value, json};

use super::super::wire::Problem;
use super::request::Touched;

/// Pages of a table that are copied at most when a lag is switched on: 1 MB each.
const COPY_PAGES_MAX: usize = 10_000;

/// The copy, while a lag is set.
#[derive(Default)]
pub(super) struct Lagging {
    copy: Mutex<Option<Copy>>,
}

struct Copy {
    tables: Database,
    /// The tables that the copy has, with the names of their key attributes.
    keys: BTreeMap<String, Vec<String>>,
    waiting: VecDeque<(Instant, Change)>,
}

struct Change {
    table: String,
    key: Map<String, Value>,
    /// The item after the write; `None` when it is gone.
    item: Option<Map<String, Value>>,
}

impl Lagging {
    /// Runs `read`, which reads an index of `table`, on the tables, or while a lag is set on a copy
    /// that shows writes only after the lag. The copy is created if there is none.
    pub fn read_index<T>(
        &self,
        database: &Database,
        lag: Duration,
        table: &str,
        read: impl FnOnce(&Database) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if lag.is_zero() {
            return read(database);
        }
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = ensure(&mut copy, database)?;
        copy.know(database, table)?;
        copy.catch_up(Instant::now());
        read(&copy.tables)
    }

    /// Removes a deleted table and its waiting writes from the copy, so that a new table of its
    /// name begins empty. Does nothing if there is no copy, or it does not have the table.
    pub fn forget(&self, table: &str) {
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copy) = copy.as_mut() {
            copy.waiting.retain(|(_, change)| change.table != table);
            copy.keys.remove(table);
            // One that the copy never knew is forgotten already.
            let _ = super::run(&json!({"TableName": table}), |r| copy.tables.delete_table(r));
        }
    }

    /// Runs `write` and returns its result; `touched` are the items that it writes. While a lag is
    /// set, a write that succeeded is queued for the copy, which is created first if there is none;
    /// if that fails, `write` does not run. Without a lag the copy is dropped if `touched` is not
    /// empty. A later error of the copy is returned even though the write took effect.
    pub fn write<T>(
        &self,
        database: &Database,
        lag: Duration,
        touched: Vec<Touched>,
        write: impl FnOnce() -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if lag.is_zero() {
            let result = write();
            // Without a lag the copy is not maintained; it is rebuilt when it is needed again.
            if !touched.is_empty() {
                *self.copy.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            return result;
        }
        if touched.is_empty() {
            return write();
        }
        // Held over the write: what is noted later is never older than what was noted before.
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = ensure(&mut copy, database)?;
        let result = write()?;
        let due = Instant::now() + lag;
        for written in touched {
            let names = copy.know(database, &written.table)?;
            let key = key_of(names, &written);
            let item = read_item(database, &written.table, &key)?;
            copy.waiting.push_back((due, Change { table: written.table, key, item }));
        }
        copy.catch_up(Instant::now());
        Ok(result)
    }
}

/// Returns the copy, which is created from the present tables if there is none.
fn ensure<'a>(copy: &'a mut Option<Copy>, database: &Database) -> Result<&'a mut Copy, Problem> {
    match copy {
        Some(copy) => Ok(copy),
        none => Ok(none.insert(copied(database)?)),
    }
}

impl Copy {
    /// Returns the names of the key attributes of `table`, which is created in the copy, empty, if
    /// it is newer than the copy; its writes follow later. Empty if the table exists nowhere.
    fn know(&mut self, database: &Database, table: &str) -> Result<&[String], Problem> {
        if !self.keys.contains_key(table) {
            // A table that is nowhere is for the request itself to complain about.
            let Ok(description) = describe(database, table) else { return Ok(&[]) };
            self.create(table, &description)?;
        }
        Ok(&self.keys[table])
    }

    /// Creates `table` in the copy, empty.
    fn create(&mut self, table: &str, description: &Value) -> Result<(), Problem> {
        super::run(&creation(description), |r| self.tables.create_table(r))?;
        self.keys.insert(table.to_owned(), key_names(description));
        Ok(())
    }

    /// Applies the queued writes whose lag has passed at `now` to the copy, in their order. Writes
    /// that fail, as for a deleted table, are dropped.
    fn catch_up(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, change)) = self.waiting.pop_front() {
                // A table that is gone meanwhile has nothing to follow.
                let _ = change.apply(&self.tables);
            }
        }
    }
}

impl Change {
    /// Stores the item in the copy as it was after the write, or deletes it if it was gone.
    fn apply(self, tables: &Database) -> Result<(), Problem> {
        match self.item {
            Some(item) => put(tables, &self.table, item),
            None => super::run(&json!({"TableName": self.table, "Key": self.key}), |r| {
                tables.delete_item(r)
            })
            .map(|_| ()),
        }
    }
}

/// Stores an item in the copy.
fn put(tables: &Database, table: &str, item: Map<String, Value>) -> Result<(), Problem> {
    super::run(&json!({"TableName": table, "Item": item}), |r| tables.put_item(r)).map(|_| ())
}

/// Reads an item by its key, consistently; `None` if there is none. An unknown table is an error.
fn read_item(
    database: &Database,
    table: &str,
    key: &Map<String, Value>,
) -> Result<Option<Map<String, Value>>, Problem> {
    let request = json!({"TableName": table, "Key": key, "ConsistentRead": true});
    let answer = super::run(&request, |r| database.get_item(r))?;
    Ok(answer.get("Item").and_then(Value::as_object).cloned())
}

/// Returns the description of a table; an error if it does not exist.
fn describe(database: &Database, table: &str) -> Result<Value, Problem> {
    let answer = super::run(&json!({"TableName": table}), |r| database.describe_table(r))?;
    Ok(answer.get("Table").cloned().unwrap_or_default())
}

/// Returns the names of the key attributes of a described table.
fn key_names(description: &Value) -> Vec<String> {
    let schema = description.get("KeySchema").and_then(Value::as_array).into_iter().flatten();
    schema.filter_map(|part| part.get("AttributeName")?.as_str().map(str::to_owned)).collect()
}

/// Returns the key attributes of a written item, which are called `names`, from among its other
/// attributes.
fn key_of(names: &[String], written: &Touched) -> Map<String, Value> {
    names.iter().filter_map(|name| Some((name.clone(), written.key.get(name)?.clone()))).collect()
}

/// Returns a copy in memory of the tables, their indexes and items. More than the first 100 tables
/// that `database` lists, or 10,000 pages (1 MB each) of one table, are left out without an error.
fn copied(database: &Database) -> Result<Copy, Problem> {
    let engine = |error: dynoxide::DynoxideError| super::problem(&error);
    let tables = Database::memory().map_err(engine)?;
    let mut copy = Copy { tables, keys: BTreeMap::new(), waiting: VecDeque::new() };
    let names = super::run(&json!({}), |r| database.list_tables(r))?;
    for name in names
        .get("TableNames")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        copy.create(name, &describe(database, name)?)?;
        copy_items(database, &copy.tables, name)?;
    }
    Ok(copy)
}

/// Returns the request that creates a table with the keys and global secondary indexes of this
/// description, billed by request; other settings are left out.
fn creation(description: &Value) -> Value {
    let mut request = Map::new();
    for member in ["TableName", "KeySchema", "AttributeDefinitions"] {
        request.insert(member.to_owned(), description.get(member).cloned().unwrap_or_default());
    }
    request.insert("BillingMode".to_owned(), json!("PAY_PER_REQUEST"));
    let indexes: Vec<Value> = description
        .get("GlobalSecondaryIndexes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|index| json!({"IndexName": index["IndexName"], "KeySchema": index["KeySchema"], "Projection": index["Projection"]}))
        .collect();
    if !indexes.is_empty() {
        request.insert("GlobalSecondaryIndexes".to_owned(), Value::Array(indexes));
    }
    Value::Object(request)
}

/// Copies all items of a table, up to 10,000 pages of 1 MB; what is beyond is left out without an
/// error. The table must exist in the copy.
fn copy_items(database: &Database, copy: &Database, table: &str) -> Result<(), Problem> {
    let mut request = json!({"TableName": table, "ConsistentRead": true});
    for _ in 0..COPY_PAGES_MAX {
        let page = super::run(&request, |r| database.scan(r))?;
        for item in page
            .get("Items")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
        {
            put(copy, table, item.clone())?;
        }
        match page.get("LastEvaluatedKey") {
            Some(last) => request["ExclusiveStartKey"] = last.clone(),
            None => return Ok(()),
        }
    }
    Ok(())
}
