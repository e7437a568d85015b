//! Who is let in, and what is said to who is not.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sluicegate_dispatch::Source;
use sluicegate_sources::OpenError;
use sluicegate_sources::postgres::{PostgresSettings, PostgresSource, probe};
use sluicegate_testkit::brokers::Broker;
use sluicegate_testkit::conformance::source::publication;

use crate::stage::{Sql, database, ids, lent, open, own, receive, until};

fn parsed(uri: &str) -> PostgresSettings {
    PostgresSettings::parse(uri).unwrap()
}

/// Both ways to find out say the same.
async fn refusal(uri: &str) -> String {
    let opened = PostgresSource::<sluicegate_dispatch::Message>::open(parsed(uri)).await;
    let Err(OpenError::Refused(why)) = opened.map(drop) else { panic!("{uri} was opened") };
    let probed = probe(&parsed(uri)).await;
    assert!(matches!(probed, Err(OpenError::Refused(_))), "{probed:?}");
    assert!(!why.contains("secret"), "{why}");
    why
}

#[test]
fn addresses() {
    #[rustfmt::skip]
    let wrong = [
        ("nonsense", "no URL"),
        ("mysql://h/db?queue=q", "must be `postgres`"),
        ("postgres://h/db", "`queue` is missing"),
        ("postgres://h/db?queue=", "`queue` must have"),
        ("postgres://h/db?queue=a&queue=b", "`queue` comes twice"),
        ("postgres://h/db?queue=q&sslmod=disable", "did you mean `sslmode`?"),
        ("postgres://h/db?queue=q&shema=x", "did you mean `schema`?"),
        ("postgres://h/db?queue=q&zzz=x", "known are ca, host, queue"),
        ("postgres://h/db?queue=q&sslmode=maybe", "`sslmode` must be"),
        ("postgres://h/db?queue=q&schema=Robert'); DROP", "`schema` must have"),
        ("postgres://h/db?queue=q&schema=pg_x", "`schema` must have"),
        ("postgres://h/db?queue=q&host=here", "`host` must be the folder"),
        ("postgres://h/?queue=q", "the database is missing"),
        ("postgres:///db?queue=q", "the host is missing"),
        ("postgres://u:%zz@h/db?queue=q", "an escape"),
    ];
    for (uri, part) in wrong {
        let error = PostgresSettings::parse(uri).unwrap_err();
        assert!(matches!(error, OpenError::Address(_)));
        assert!(error.to_string().contains(part), "{uri}: {error}");
    }
    for right in [
        "postgres://h/db?queue=q",
        "postgresql://u:p%40ss@h:5433/my%20db?queue=a%20b&sslmode=require&schema=jobs_2",
        "postgres://[::1]/db?queue=q",
        "postgres:///db?queue=q&host=/var/run/postgresql",
    ] {
        let settings = parsed(right);
        assert!(!format!("{settings:?}").contains("p@ss"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_refused_is_told_why() {
    let Some(server) = own() else { return };
    let sql = Sql::connect(server.url()).await;
    sql.run("CREATE ROLE locked LOGIN PASSWORD 'right secret'; CREATE ROLE plain LOGIN").await;
    let rules = server.folder().join("data/pg_hba.conf");
    let old = std::fs::read_to_string(&rules).unwrap();
    let new = format!("host all locked 127.0.0.1/32 scram-sha-256\n{old}");
    std::fs::write(&rules, new).unwrap();
    sql.run("SELECT pg_reload_conf()").await;
    let address = server.address();
    // The rules are read in a moment; until then everybody comes in.
    until("locked", async || {
        probe(&parsed(&format!("postgres://locked@{address}/postgres?queue=q"))).await.is_err()
    })
    .await;
    let why =
        refusal(&format!("postgres://locked:wrong%20secret@{address}/postgres?queue=q")).await;
    assert!(
        why.contains("password authentication failed") && why.contains("check the user"),
        "{why}"
    );
    let why = refusal(&format!("postgres://locked@{address}/postgres?queue=q")).await;
    assert!(why.contains("put the password into the address"), "{why}");
    let why = refusal(&format!("postgres://postgres@{address}/nowhere?queue=q")).await;
    assert!(why.contains("create the database"), "{why}");
    let why = refusal(&format!("postgres://plain@{address}/postgres?queue=q")).await;
    assert!(why.contains("grant CREATE"), "{why}");
    let why =
        refusal(&format!("postgres://postgres@{address}/postgres?queue=q&sslmode=require")).await;
    assert!(why.contains("turn TLS on"), "{why}");
    // With a schema of its own, and the right password, it comes in.
    sql.run("CREATE SCHEMA jobs AUTHORIZATION locked").await;
    let uri = format!("postgres://locked:right%20secret@{address}/postgres?queue=q&schema=jobs");
    probe(&parsed(&uri)).await.unwrap();
    let source: PostgresSource = PostgresSource::open(parsed(&uri)).await.unwrap();
    source.publish(vec![publication("m1")]).await.unwrap();
    assert_eq!(ids(&receive(&source, 1).await), ["m1"]);
    probe(&parsed(&uri)).await.unwrap();
    // Tables of a newer version are left alone.
    sql.run("INSERT INTO jobs.version VALUES (99, now())").await;
    let why = refusal(&uri).await;
    assert!(why.contains("version 99"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_come_first() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let open = || open(&url, Duration::from_secs(60));
    let (one, two, three, four) = tokio::join!(open(), open(), open(), open());
    one.publish(vec![publication("m1")]).await.unwrap();
    for source in [&two, &three, &four] {
        source.health().unwrap();
        assert_eq!(source.depth().await.unwrap().waiting, 1);
    }
    let sql = Sql::connect(&url).await;
    assert_eq!(sql.number("SELECT count(*) FROM sluicegate.version").await, 1);
    assert_eq!(sql.number("SELECT count(*) FROM sluicegate.queues").await, 1);
}

/// Gives the server a certificate; answers the authority's.
async fn secure(server: &Broker) -> String {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])
        .unwrap()
        .signed_by(&key, &authority)
        .unwrap();
    let data = server.folder().join("data");
    let owner = std::fs::metadata(&data).unwrap();
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    };
    write(&data.join("server.crt"), &certificate.pem());
    write(&data.join("server.key"), &key.serialize_pem());
    let sql = Sql::connect(server.url()).await;
    sql.run("ALTER SYSTEM SET ssl = on").await;
    sql.run("SELECT pg_reload_conf()").await;
    authority.pem()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_connections() {
    let Some(server) = own() else { return };
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, secure(&server).await).unwrap();
    let base = format!("postgres://postgres@{}/postgres?queue=q", server.address());
    let good = format!("{base}&sslmode=require&ca={}", ca.display());
    until("on", async || probe(&parsed(&good)).await.is_ok()).await;
    let source: PostgresSource = PostgresSource::open(parsed(&good)).await.unwrap();
    source.publish(vec![publication("m1")]).await.unwrap();
    assert_eq!(ids(&receive(&source, 1).await), ["m1"]);
    let sql = Sql::connect(server.url()).await;
    let bare = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                WHERE a.application_name = 'sluicegate' AND NOT s.ssl";
    assert_eq!(sql.number(bare).await, 0);
    // An authority that nobody here knows.
    for mode in ["require", "prefer"] {
        let why = refusal(&format!("{base}&sslmode={mode}")).await;
        assert!(why.contains("ertificate") && why.contains("ca=FILE"), "{why}");
    }
    for (content, part) in [(None, "No such file"), (Some("nothing"), "no certificate")] {
        let path = folder.path().join("other.pem");
        std::fs::remove_file(&path).ok();
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let error = probe(&parsed(&format!("{base}&ca={}", path.display()))).await.unwrap_err();
        assert!(error.to_string().contains("ca: ") && error.to_string().contains(part), "{error}");
    }
}
