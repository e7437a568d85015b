//! The paper's `workerPool` object, as it stands in its section 10.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{CheckedSettings, Settings, Wrong};

/// Its keys, and ours.
const KEYS: [(&str, &str); 10] = [
    ("enabled", "enabled"),
    ("maxWorkers", "max_workers"),
    ("minWorkers", "min_workers"),
    ("queueTimeoutMs", "queue_timeout"),
    ("executionTimeoutMs", "execution_timeout"),
    ("maxQueueDepthPerTenant", "max_queue_depth_per_tenant"),
    ("maxQueueDepthGlobal", "max_queue_depth_global"),
    ("workerIdleTimeoutMs", "worker_idle_timeout"),
    ("maxRequestsPerWorker", "max_requests_per_worker"),
    ("gracefulShutdownMs", "graceful_shutdown"),
];

impl Settings {
    /// Checks these settings with those of a `workerPool` object over them: the object alone, or in the document
    /// that holds it (`agents.defaults.workerPool`). With `enabled` false or absent it asks for one request at a
    /// time, in order of arrival.
    ///
    /// # Errors
    /// All that cannot work, each with its key as the object spells it.
    pub fn check_with_worker_pool(mut self, json: &str) -> Result<CheckedSettings, Vec<Wrong>> {
        let document: Value = serde_json::from_str(json)
            .map_err(|why| vec![Wrong::new("workerPool", format!("is no JSON: {why}"))])?;
        let Some(object) = find(&document) else {
            return Err(vec![Wrong::new("workerPool", "must be an object")]);
        };
        let mut wrongs = Vec::new();
        for (key, value) in object {
            if let Err(message) = self.set(key, value) {
                wrongs.push(Wrong::new(key, message));
            }
        }
        self.serial = object.get("enabled") != Some(&Value::Bool(true));
        let spelled = |wrong: Wrong| {
            let written = KEYS.iter().find(|(_, ours)| *ours == wrong.key);
            let key = written.map_or(wrong.key.as_str(), |(theirs, _)| theirs).to_owned();
            let message = KEYS.iter().fold(wrong.message.clone(), |message, (theirs, ours)| {
                message.replace(ours, theirs)
            });
            Wrong { key, message }
        };
        let checked = self.check().map_err(|wrongs| wrongs.into_iter().map(spelled));
        match checked {
            Ok(checked) if wrongs.is_empty() => Ok(checked),
            Ok(_) => Err(wrongs),
            Err(others) => {
                // What could not be read has another value by now, of which nothing is to be said.
                let is_unread = |other: &Wrong| {
                    let has = |key: &str| other.key == key || other.message.contains(key);
                    wrongs.iter().any(|wrong| has(&wrong.key))
                };
                let others: Vec<Wrong> = others.filter(|other| !is_unread(other)).collect();
                wrongs.extend(others);
                Err(wrongs)
            }
        }
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let count = || {
            let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
            count.ok_or_else(|| format!("must be a whole number, not {value}"))
        };
        let time = || {
            let millis = value.as_u64().ok_or_else(|| format!("must be milliseconds, not {value}"));
            millis.map(Duration::from_millis)
        };
        match key {
            "enabled" if value.is_boolean() => {}
            "enabled" => return Err(format!("must be true or false, not {value}")),
            "maxWorkers" => self.max_workers = count()?,
            "minWorkers" => self.min_workers = count()?,
            "queueTimeoutMs" => self.queue_timeout = time()?,
            "executionTimeoutMs" => self.execution_timeout = time()?,
            "maxQueueDepthPerTenant" => self.max_queue_depth_per_tenant = count()?,
            "maxQueueDepthGlobal" => self.max_queue_depth_global = count()?,
            "workerIdleTimeoutMs" => self.worker_idle_timeout = time()?,
            "maxRequestsPerWorker" => self.max_requests_per_worker = count()?,
            "gracefulShutdownMs" => self.graceful_shutdown = time()?,
            _ => {
                let known: Vec<&str> = KEYS.iter().map(|(theirs, _)| *theirs).collect();
                return Err(format!("is not known; known are {}", known.join(", ")));
            }
        }
        Ok(())
    }
}

fn find(document: &Value) -> Option<&Map<String, Value>> {
    let places = ["/agents/defaults/workerPool", "/workerPool", ""];
    places.iter().find_map(|place| document.pointer(place)).and_then(Value::as_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paper 001, section 10, as it stands.
    const PAPER: &str = r#"{ "agents": { "defaults": { "workerPool": {
        "enabled": true, "maxWorkers": 4, "minWorkers": 1, "queueTimeoutMs": 120000,
        "executionTimeoutMs": 180000, "maxQueueDepthPerTenant": 3, "maxQueueDepthGlobal": 50,
        "workerIdleTimeoutMs": 300000, "maxRequestsPerWorker": 100 },
        "cliBackends": { "claude-cli": { "serialize": false } } } } }"#;

    #[test]
    fn the_papers_object_gives_the_papers_defaults() {
        let read = Settings::default().check_with_worker_pool(PAPER).unwrap();
        assert_eq!(*read, Settings::default());
    }

    #[test]
    fn not_enabled_is_one_at_a_time() {
        for (object, concurrency) in [
            (r#"{"enabled": false, "maxWorkers": 4}"#, 1),
            (r#"{"maxWorkers": 4}"#, 1),
            (r#"{"workerPool": {"enabled": true, "maxWorkers": 4}}"#, 4),
        ] {
            let read = Settings::default().check_with_worker_pool(object).unwrap();
            assert_eq!(read.concurrency(), concurrency, "{object}");
        }
    }

    /// `docs/rules.md#agents-9`
    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let object = r#"{"maxWorkers": "4", "minWorkers": 9, "queueTimeoutMs": 0, "size": 1,
            "gracefulShutdownMs": 9000, "executionTimeoutMs": 5000}"#;
        let wrongs = Settings::default().check_with_worker_pool(object).unwrap_err();
        let mut keys: Vec<&str> = wrongs.iter().map(|wrong| wrong.key.as_str()).collect();
        keys.sort_unstable();
        // Whether there are more of the least than of the most is not known.
        assert_eq!(keys, ["gracefulShutdownMs", "maxWorkers", "queueTimeoutMs", "size"]);
    }

    /// `docs/rules.md#agents-9`
    #[test]
    fn a_message_names_the_key_as_it_was_written() {
        let cases = [
            (r#"{"maxWorkers": 0, "minWorkers": 0}"#, "maxWorkers: must be at least 1"),
            (r#"{"minWorkers": 9}"#, "minWorkers: is 9, more than maxWorkers, which is 4"),
            (r#"{"queueTimeoutMs": 0}"#, "queueTimeoutMs: must be longer than zero"),
            (
                r#"{"gracefulShutdownMs": 9000, "executionTimeoutMs": 5000}"#,
                "gracefulShutdownMs: is 9s, longer than executionTimeoutMs, which is 5s",
            ),
            (r#"{"maxWorkers": "4"}"#, "maxWorkers: must be a whole number, not \"4\""),
            (r#"{"enabled": 1}"#, "enabled: must be true or false, not 1"),
            ("[]", "workerPool: must be an object"),
        ];
        for (object, message) in cases {
            let wrongs = Settings::default().check_with_worker_pool(object).unwrap_err();
            let messages: Vec<String> = wrongs.iter().map(ToString::to_string).collect();
            assert_eq!(messages, [message]);
        }
        let wrongs = Settings::default().check_with_worker_pool(r#"{"maxWorker": 4}"#).unwrap_err();
        assert!(wrongs[0].to_string().starts_with("maxWorker: is not known"));
    }
}
