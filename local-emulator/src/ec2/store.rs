//! The record of machines and of images made from them: one SQLite file, written before anything is
//! answered or started.

use super::Boot;
use crate::data::StoreError;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A machine, also one that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) number: i64,
    pub(super) id: String,
    pub(super) reservation: String,
    pub(super) region: String,
    pub(super) token: Option<String>,
    pub(super) fingerprint: String,
    pub(super) state: State,
    pub(super) image: String,
    pub(super) kind: String,
    pub(super) az: String,
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) boot: Boot,
    pub(super) user_data: Vec<u8>,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) launched_ms: u64,
    pub(super) ended_ms: Option<u64>,
}

/// What a machine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    Running,
    ShuttingDown,
    Terminated,
}

impl State {
    /// Returns EC2's name of the state.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
        }
    }

    /// Parses EC2's name of a state; `None` for any other text.
    fn read(text: &str) -> Option<Self> {
        [Self::Pending, Self::Running, Self::ShuttingDown, Self::Terminated]
            .into_iter()
            .find(|state| state.as_str() == text)
    }

    /// Returns whether a machine in this state needs an address and counts against the limit: any
    /// but a terminated one.
    pub(super) fn exists(self) -> bool {
        self != Self::Terminated
    }
}

/// An image that was made from a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageRecord {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) state: ImageState,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) created_ms: u64,
}

/// An image that is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedImage {
    pub(super) id: String,
    pub(super) name: String,
    /// When it was made, as ISO text.
    pub(super) created: String,
    pub(super) state: ImageState,
    pub(super) boot: Boot,
    pub(super) tags: BTreeMap<String, String>,
}

/// What an image does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageState {
    /// It is being copied.
    Pending,
    Available,
    Failed,
    /// It is not listed and cannot be launched; machines that were launched from it go on.
    Deregistered,
}

impl ImageState {
    const ALL: [Self; 4] = [Self::Pending, Self::Available, Self::Failed, Self::Deregistered];

    /// Returns EC2's name of the state.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Available => "available",
            Self::Failed => "failed",
            Self::Deregistered => "deregistered",
        }
    }
}

/// The file.
pub(super) struct Store {
    path: PathBuf,
    connection: Connection,
}

const TABLE: &str = "create table if not exists machine (number integer primary key autoincrement, id text unique not null, \
    reservation text not null, token text, fingerprint text not null, state text not null, image text not null, kind text not null, \
    az text not null, address text not null, port integer not null, boot integer not null, user_data blob not null, tags text not null, \
    launched_ms integer not null, ended_ms integer, region text not null default ''); create index if not exists by_token on machine (token); \
    create table if not exists image (number integer primary key autoincrement, id text unique not null, name text not null, \
    state text not null, tags text not null, created_ms integer not null);";

impl Store {
    /// Opens or creates the list of machines in `directory`, which is created if it is missing. The
    /// machines of a list without regions are in `region`.
    pub(super) fn open(directory: &Path, region: &str) -> Result<Self, StoreError> {
        std::fs::create_dir_all(directory).map_err(|source| StoreError::File {
            attempt: "make",
            path: directory.to_owned(),
            source,
        })?;
        let path = directory.join("ec2.db");
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(&path)?;
            // A write-ahead log without a sync for each commit outlives the process at any moment.
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "normal")?;
            connection.execute_batch(TABLE)?;
            let has_region =
                "select count(*) from pragma_table_info('machine') where name = 'region'";
            if connection.query_row(has_region, [], |row| row.get::<_, i64>(0))? == 0 {
                connection.execute_batch(
                    "alter table machine add column region text not null default ''",
                )?;
            }
            connection.execute("update machine set region = ?1 where region = ''", [region])?;
            Ok(connection)
        };
        let connection = open().map_err(|source| StoreError::Sqlite {
            attempt: "open",
            path: path.clone(),
            source,
        })?;
        Ok(Self { path, connection })
    }

    /// Returns a function that adds the attempt and the path of the database to an error.
    fn error(&self, attempt: &'static str) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
        let path = self.path.clone();
        move |source| StoreError::Sqlite { attempt, path: path.clone(), source }
    }

    /// Returns every machine that was ever launched, also terminated ones, in the order of
    /// launches.
    pub(super) fn all(&self) -> Result<Vec<Record>, StoreError> {
        let read = || -> rusqlite::Result<Vec<Record>> {
            let mut statement =
                self.connection.prepare_cached("select * from machine order by number")?;
            statement.query_map([], record)?.collect()
        };
        read().map_err(self.error("read the machines"))
    }

    /// Returns one machine, also a terminated one; `None` if it does not exist.
    pub(super) fn find(&self, id: &str) -> Result<Option<Record>, StoreError> {
        let read = self.connection.query_row("select * from machine where id = ?1", [id], record);
        read.optional().map_err(self.error("read a machine"))
    }

    /// Adds the machines of one launch, all or none. The records' `number` and `ended_ms` are
    /// ignored: each machine gets a new number and no end.
    pub(super) fn add(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let error = self.error("write a launch");
        let transaction = self.connection.transaction().map_err(&error)?;
        for record in records {
            let boot: i64 = match record.boot {
                Boot::Normal => 0,
                Boot::Never => -1,
                Boot::Slow { millis } => i64::try_from(millis).unwrap_or(i64::MAX),
            };
            let tags = serde_json::to_string(&record.tags).unwrap_or_default();
            let launched = i64::try_from(record.launched_ms).unwrap_or(i64::MAX);
            transaction
                .execute(
                    "insert into machine (id, reservation, token, fingerprint, state, image, kind, az, address, port, boot, user_data, tags, launched_ms, region) \
                     values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
                    params![
                        record.id, record.reservation, record.token, record.fingerprint, record.state.as_str(), record.image, record.kind,
                        record.az, record.address, record.port, boot, record.user_data, tags, launched, record.region
                    ],
                )
                .map_err(&error)?;
        }
        transaction.commit().map_err(&error)
    }

    /// Moves a machine from one of these states to another, and stores `ended_ms` as its end, also
    /// `None`. Returns false, with nothing changed, if it is in no such state or does not exist.
    pub(super) fn advance(
        &self,
        id: &str,
        from: &[State],
        to: State,
        ended_ms: Option<u64>,
    ) -> Result<bool, StoreError> {
        let ended = ended_ms.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        for from in from {
            let sql = "update machine set state = ?3, ended_ms = ?4 where id = ?1 and state = ?2";
            let changed =
                self.connection.execute(sql, params![id, from.as_str(), to.as_str(), ended]);
            if changed.map_err(self.error("write a machine's state"))? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Replaces all tags of a machine; no error if it does not exist.
    pub(super) fn set_tags(
        &self,
        id: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let tags = serde_json::to_string(tags).unwrap_or_default();
        let done = self
            .connection
            .execute("update machine set tags = ?2 where id = ?1", params![id, tags]);
        done.map(drop).map_err(self.error("write a machine's tags"))
    }

    /// Returns every image that was ever made from a machine, also deregistered ones, in the order
    /// of their creation.
    pub(super) fn images(&self) -> Result<Vec<ImageRecord>, StoreError> {
        let read = || -> rusqlite::Result<Vec<ImageRecord>> {
            let mut statement =
                self.connection.prepare_cached("select * from image order by number")?;
            statement.query_map([], image_record)?.collect()
        };
        read().map_err(self.error("read the images"))
    }

    /// Adds an image.
    pub(super) fn add_image(&self, image: &ImageRecord) -> Result<(), StoreError> {
        let tags = serde_json::to_string(&image.tags).unwrap_or_default();
        let created = i64::try_from(image.created_ms).unwrap_or(i64::MAX);
        let sql =
            "insert into image (id, name, state, tags, created_ms) values (?1, ?2, ?3, ?4, ?5)";
        let done = self
            .connection
            .execute(sql, params![image.id, image.name, image.state.as_str(), tags, created]);
        done.map(drop).map_err(self.error("write an image"))
    }

    /// Stores the state of an image; nothing changes if it does not exist or is deregistered.
    pub(super) fn set_image_state(&self, id: &str, state: ImageState) -> Result<(), StoreError> {
        let sql = "update image set state = ?2 where id = ?1 and state <> 'deregistered'";
        let done = self.connection.execute(sql, params![id, state.as_str()]);
        done.map(drop).map_err(self.error("write an image's state"))
    }
}

/// Reads an image from a row with all columns. An error for an unknown state or invalid tags.
fn image_record(row: &Row<'_>) -> rusqlite::Result<ImageRecord> {
    let wrong = |name: &str| rusqlite::Error::InvalidColumnName(name.to_owned());
    let (state, tags): (String, String) = (row.get("state")?, row.get("tags")?);
    Ok(ImageRecord {
        id: row.get("id")?,
        name: row.get("name")?,
        state: ImageState::ALL
            .into_iter()
            .find(|known| known.as_str() == state)
            .ok_or_else(|| wrong("state"))?,
        tags: serde_json::from_str(&tags).map_err(|_| wrong("tags"))?,
        created_ms: u64::try_from(row.get::<_, i64>("created_ms")?).unwrap_or(0),
    })
}

/// Reads a machine from a row with all columns. An error for an unknown state or invalid tags.
fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let wrong = |name: &str| rusqlite::Error::InvalidColumnName(name.to_owned());
    let state: String = row.get("state")?;
    let tags: String = row.get("tags")?;
    let boot: i64 = row.get("boot")?;
    let ended: Option<i64> = row.get("ended_ms")?;
    Ok(Record {
        number: row.get("number")?,
        id: row.get("id")?,
        reservation: row.get("reservation")?,
        region: row.get("region")?,
        token: row.get("token")?,
        fingerprint: row.get("fingerprint")?,
        state: State::read(&state).ok_or_else(|| wrong("state"))?,
        image: row.get("image")?,
        kind: row.get("kind")?,
        az: row.get("az")?,
        address: row.get("address")?,
        port: row.get("port")?,
        boot: match u64::try_from(boot) {
            Ok(0) => Boot::Normal,
            Ok(millis) => Boot::Slow { millis },
            Err(_) => Boot::Never,
        },
        user_data: row.get("user_data")?,
        tags: serde_json::from_str(&tags).map_err(|_| wrong("tags"))?,
        launched_ms: u64::try_from(row.get::<_, i64>("launched_ms")?).unwrap_or(0),
        ended_ms: ended.and_then(|at| u64::try_from(at).ok()),
    })
}
