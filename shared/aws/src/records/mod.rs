//! The table on DynamoDB: consistent reads, both indexes, conditional writes.

mod commit;
mod item;

use crate::endpoint::DataService;
use crate::failure::failed;
use crate::limits;
use crate::settings::AwsSettings;
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use item::{Item, decode, key_item, key_of, number, text};
use sluice_model::Timestamp;
use sluice_runtime::record::{Key, Query, Record, TransactionOutcome, Write};
use sluice_runtime::{PortError, Records};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Keys in one BatchGetItem.
const BATCH_KEYS_MAX: usize = 100;
/// Successive rounds of a batch read without progress before it is given up.
const IDLE_ROUNDS_MAX: u32 = 5;
/// The first pause after a round that left keys unread; it doubles.
const PAUSE_MILLISECONDS: u64 = 20;
/// Items asked for in one page.
const PAGE_ITEMS_MAX: usize = 1000;
/// Pages that may come back empty, one after another, before a query is given up: DynamoDB fills
/// pages unless it filters.
const EMPTY_PAGES_MAX: u32 = 10;

pub(crate) struct DynamoRecords {
    client: Client,
    table: String,
}

impl DynamoRecords {
    /// Creates the port onto the table that `settings` name; makes no requests.
    pub(crate) fn new(sdk_config: &SdkConfig, settings: &AwsSettings) -> Self {
        let config = aws_sdk_dynamodb::config::Builder::from(sdk_config)
            .retry_config(limits::retries())
            .timeout_config(limits::timeouts());
        Self { client: Client::from_conf(config.build()), table: settings.table.clone() }
    }

    /// Reads one record consistently; `None` if it does not exist.
    async fn get_one(&self, key: &Key) -> Result<Option<Record>, PortError> {
        let answer = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(key_item(key)))
            .consistent_read(true)
            .send()
            .await
            .map_err(|error| failed(DataService::DynamoDb, format!("read {key}"), error))?;
        answer.item.map(decode).transpose()
    }

    /// Reads at most 100 distinct keys consistently, in several rounds if the service leaves some
    /// unread. Returns the records that exist, by key. After more than five rounds without
    /// progress, a throttled error.
    async fn get_batch(&self, keys: &[&Key]) -> Result<BTreeMap<Key, Record>, PortError> {
        let mut found = BTreeMap::new();
        let mut left: Vec<Item> = keys.iter().map(|key| key_item(key)).collect();
        let mut idle_rounds = 0;
        while !left.is_empty() {
            if idle_rounds > 0 {
                let pause = PAUSE_MILLISECONDS << idle_rounds;
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            let asked = left.len();
            let (records, unread) = self.get_round(left).await?;
            for record in records {
                found.insert(record.key.clone(), record);
            }
            left = unread;
            idle_rounds = if left.len() < asked { 0 } else { idle_rounds + 1 };
            if idle_rounds > IDLE_ROUNDS_MAX {
                return Err(PortError {
                    attempt: format!("read {} records", keys.len()),
                    why: format!("{} of them were left unread time after time", left.len()),
                    throttled: true,
                });
            }
        }
        Ok(found)
    }

    /// Reads some keys once, consistently. Returns the records that exist, in no particular order,
    /// and the keys that the service left unread.
    async fn get_round(&self, keys: Vec<Item>) -> Result<(Vec<Record>, Vec<Item>), PortError> {
        let attempt = format!("read {} records", keys.len());
        let asked = KeysAndAttributes::builder()
            .set_keys(Some(keys))
            .consistent_read(true)
            .build()
            .map_err(|error| PortError::unknown(&attempt, error))?;
        let answer = self
            .client
            .batch_get_item()
            .request_items(&self.table, asked)
            .send()
            .await
            .map_err(|error| failed(DataService::DynamoDb, &attempt, error))?;
        let records = answer
            .responses
            .unwrap_or_default()
            .remove(&self.table)
            .unwrap_or_default()
            .into_iter()
            .map(decode)
            .collect::<Result<_, _>>()?;
        let unread = answer.unprocessed_keys.unwrap_or_default().remove(&self.table);
        Ok((records, unread.map(|left| left.keys).unwrap_or_default()))
    }

    /// Requests pages of a query after `from` until there are `limit` items or no further page, and
    /// returns at most `limit` items. An error if too many successive pages are empty. `attempt`
    /// names the query in errors.
    async fn pages(
        &self,
        attempt: &str,
        query: QueryFluentBuilder,
        from: Option<Item>,
        limit: usize,
    ) -> Result<Vec<Item>, PortError> {
        let mut items: Vec<Item> = Vec::new();
        let mut from = from;
        let mut empty_pages = 0;
        while items.len() < limit {
            let wanted = (limit - items.len()).min(PAGE_ITEMS_MAX);
            let page = query
                .clone()
                .limit(i32::try_from(wanted).unwrap_or(i32::MAX))
                .set_exclusive_start_key(from)
                .send()
                .await
                .map_err(|error| failed(DataService::DynamoDb, attempt, error))?;
            let got = page.items.unwrap_or_default();
            empty_pages = if got.is_empty() { empty_pages + 1 } else { 0 };
            items.extend(got);
            from = page.last_evaluated_key.filter(|key| !key.is_empty());
            if from.is_none() {
                break;
            }
            if empty_pages > EMPTY_PAGES_MAX {
                let why = "too many successive pages were empty although more were announced";
                return Err(PortError::unknown(attempt, why));
            }
        }
        items.truncate(limit);
        Ok(items)
    }

    /// Runs a query on an index and returns the keys of at most `limit` records, in the order of
    /// the index.
    async fn keys(
        &self,
        attempt: String,
        query: QueryFluentBuilder,
        limit: usize,
    ) -> Result<Vec<Key>, PortError> {
        let items = self.pages(&attempt, query, None, limit).await?;
        items.iter().map(key_of).collect()
    }
}

#[async_trait]
impl Records for DynamoRecords {
    /// Returns the records under `keys`, in their order, each read consistently; `None` for a
    /// missing one. Any number of keys is allowed, also repeated ones. Several records are not one
    /// snapshot. A record that cannot be decoded is an error.
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, PortError> {
        if let [key] = keys {
            return Ok(vec![self.get_one(key).await?]);
        }
        // One request may name a key once.
        let distinct: Vec<&Key> = keys.iter().collect::<BTreeSet<_>>().into_iter().collect();
        let mut found = BTreeMap::new();
        for batch in distinct.chunks(BATCH_KEYS_MAX) {
            found.append(&mut self.get_batch(batch).await?);
        }
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    /// Returns the records that match `query`, in key order, read consistently, at most its limit;
    /// fewer only if there are no more. The records after the key `after` are returned; no record
    /// need be there. A record that cannot be decoded is an error.
    async fn query(&self, query: &Query) -> Result<Vec<Record>, PortError> {
        let attempt = format!("query {} / {}…", query.partition, query.prefix);
        let after = query.after.as_ref().filter(|after| **after >= query.prefix);
        if after.is_some_and(|after| !after.starts_with(&query.prefix)) {
            // It sorts after everything with this prefix.
            return Ok(Vec::new());
        }
        // A start key need not exist: DynamoDB continues after its position.
        let from = after
            .filter(|after| !after.is_empty())
            .map(|after| key_item(&Key::new(query.partition.clone(), after.clone())));
        let mut asked = self
            .client
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .expression_attribute_names("#pk", item::PARTITION)
            .expression_attribute_values(":pk", text(&query.partition));
        asked = if query.prefix.is_empty() {
            asked.key_condition_expression("#pk = :pk")
        } else {
            asked
                .key_condition_expression("#pk = :pk AND begins_with(#sk, :prefix)")
                .expression_attribute_names("#sk", item::SORT)
                .expression_attribute_values(":prefix", text(&query.prefix))
        };
        let items = self.pages(&attempt, asked, from, query.limit).await?;
        items.into_iter().map(decode).collect()
    }

    /// Returns the keys in one shard of the index `due` whose `sweep_at` is at `until` or before,
    /// the earliest first, at most `limit`. The index may lag behind the table.
    async fn due(&self, shard: u32, until: Timestamp, limit: usize) -> Result<Vec<Key>, PortError> {
        let asked = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(item::DUE_INDEX)
            .key_condition_expression("#shard = :shard AND #at <= :until")
            .expression_attribute_names("#shard", item::DUE_SHARD)
            .expression_attribute_names("#at", item::DUE_AT)
            .expression_attribute_values(":shard", text(shard.to_string()))
            .expression_attribute_values(":until", number(until.0));
        let attempt = format!("find what is due in shard {shard}");
        self.keys(attempt, asked, limit).await
    }

    /// Returns the keys in one partition of the index `find`, by descending sort key of the index,
    /// at most `limit`; only below the sort key `before` if that is given. The index may lag behind
    /// the table.
    async fn find(
        &self,
        partition: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, PortError> {
        if before == Some("") {
            return Ok(Vec::new());
        }
        let asked = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(item::FIND_INDEX)
            .scan_index_forward(false)
            .expression_attribute_names("#of", item::FIND_PARTITION)
            .expression_attribute_values(":of", text(partition));
        let asked = match before {
            None => asked.key_condition_expression("#of = :of"),
            Some(before) => asked
                .key_condition_expression("#of = :of AND #at < :before")
                .expression_attribute_names("#at", item::FIND_SORT)
                .expression_attribute_values(":before", AttributeValue::S(before.to_owned())),
        };
        let attempt = format!("find the newest in {partition}");
        self.keys(attempt, asked, limit).await
    }

    /// Writes all records or none; at most 100, and each only once. A failed condition is an
    /// outcome and no error. After a conflict and when throttled, tries again, three times in all.
    /// A repetition within minutes counts as written if `write_id` is the same and not empty, with
    /// two exceptions: a single delete, and a single put of a record with another write id.
    async fn commit(
        &self,
        writes: Vec<Write>,
        write_id: &str,
    ) -> Result<TransactionOutcome, PortError> {
        self.write(writes, write_id).await
    }
}
