//! Which targets are called: those whose every address is public or allowed.

use std::net::{IpAddr, SocketAddr};

use sluicegate_dispatch::{CallStatus, Outcome, Rejection, Severity, Target};
use sluicegate_executors::http::{HttpSettings, IpNet, OwnAddresses, target_forbidden};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use crate::stage::{Names, Stage, message, settings};

const SPECIAL: &[(&str, &str)] = &[
    ("0.0.0.0", "unspecified"),
    ("0.255.255.255", "unspecified"),
    ("10.0.0.0", "private"),
    ("10.255.255.255", "private"),
    ("100.64.0.0", "shared by a carrier"),
    ("100.127.255.255", "shared by a carrier"),
    ("127.0.0.1", "loopback"),
    ("127.255.255.255", "loopback"),
    ("169.254.0.0", "link-local"),
    ("169.254.169.254", "a metadata service"),
    ("169.254.255.255", "link-local"),
    ("172.16.0.0", "private"),
    ("172.31.255.255", "private"),
    ("192.0.0.0", "reserved"),
    ("192.0.0.255", "reserved"),
    ("192.0.2.0", "for documentation"),
    ("192.0.2.255", "for documentation"),
    ("192.88.99.1", "reserved"),
    ("192.168.0.0", "private"),
    ("192.168.255.255", "private"),
    ("198.18.0.0", "for benchmarks"),
    ("198.19.255.255", "for benchmarks"),
    ("198.51.100.7", "for documentation"),
    ("203.0.113.7", "for documentation"),
    ("224.0.0.0", "multicast"),
    ("239.255.255.255", "multicast"),
    ("240.0.0.0", "reserved"),
    ("255.255.255.254", "reserved"),
    ("255.255.255.255", "broadcast"),
    ("::", "unspecified"),
    ("::1", "loopback"),
    ("::2", "reserved"),
    ("::7f00:1", "reserved"),
    ("::ffff:127.0.0.1", "loopback"),
    ("::ffff:10.1.2.3", "private"),
    ("::ffff:169.254.169.254", "a metadata service"),
    ("64:ff9b::7f00:1", "loopback"),
    ("64:ff9b::a9fe:a9fe", "a metadata service"),
    ("64:ff9b:1::1", "reserved"),
    ("100::1", "reserved"),
    ("2001::1", "reserved"),
    ("2001:1ff:ffff::1", "reserved"),
    ("2001:db8::1", "for documentation"),
    ("2002:7f00:1::1", "loopback"),
    ("2002:c0a8:101::1", "private"),
    ("3fff::1", "for documentation"),
    ("3fff:fff::1", "for documentation"),
    ("4000::1", "reserved"),
    ("5f00::1", "reserved"),
    ("fc00::1", "private"),
    ("fd00:ec2::254", "a metadata service"),
    ("fdff::1", "private"),
    ("fe80::1", "link-local"),
    ("febf::1", "link-local"),
    ("fec0::1", "site-local"),
    ("feff::1", "site-local"),
    ("ff02::1", "multicast"),
    ("ffff::1", "multicast"),
];

const PUBLIC: &[&str] = &[
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.0.3.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "::ffff:1.1.1.1",
    "64:ff9b::101:101",
    "2000::1",
    "2001:200::1",
    "2002:101:101::1",
    "2606:4700::1",
    "3fff:1000::1",
];

/// The same address with each of its spellings that some resolver takes for it.
const SPELLINGS: &[&str] = &[
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0X7F.1",
    "0x7f.0x0.0x0.0x1",
    "0177.0.0.1",
    "017700000001",
    "127.0.0.1.",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]",
];

fn url(address: &str) -> String {
    match address.parse() {
        Ok(IpAddr::V6(v6)) => format!("http://[{v6}]:9/"),
        _ => format!("http://{address}:9/"),
    }
}

fn refusal(url: &str, allow: &[IpNet]) -> Option<String> {
    target_forbidden(&Target::parse(url).expect("a target"), allow, &OwnAddresses::default())
}

fn ranges(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().expect("a range")).collect()
}

/// A target that was refused: once, without a call, and for this reason.
#[track_caller]
fn assert_refused(stage: &Stage, outcome: &Outcome, kind: &str) {
    let Outcome::Rejected(Rejection { status: None, why, severity: Severity::Error, .. }) = outcome
    else {
        panic!("{outcome:?}")
    };
    assert!(why.contains(&format!(" is {kind} ")), "{why}");
    assert_eq!(stage.calls(), [CallStatus::RefusedTarget], "{why}");
}

#[test]
fn special_addresses_are_told_from_public_ones() {
    for (address, kind) in SPECIAL {
        let why = refusal(&url(address), &[]).unwrap_or_default();
        assert!(why.contains(&format!(" is {kind} ")), "{address}: {why}");
        assert_eq!(refusal(&url(address), &ranges(&["0.0.0.0/0", "::/0"])), None, "{address}");
    }
    for address in PUBLIC {
        assert_eq!(refusal(&url(address), &[]), None, "{address}");
    }
}

#[test]
fn an_allowed_range_is_allowed_in_every_spelling() {
    let allowed = ranges(&["127.0.0.0/8"]);
    for spelling in SPELLINGS {
        let url = format!("http://{spelling}:9/");
        let why = refusal(&url, &[]).unwrap_or_default();
        assert!(why.contains(" is loopback "), "{spelling}: {why}");
        assert!(refusal(&url, &ranges(&["10.0.0.0/8"])).is_some(), "{spelling}");
        assert_eq!(refusal(&url, &allowed), None, "{spelling}");
    }
}

#[test]
fn loopback_is_one_place() {
    for host in ["localhost", "LocalHost.", "[::1]"] {
        let url = format!("https://{host}/");
        assert!(refusal(&url, &[]).is_some(), "{host}");
        assert_eq!(refusal(&url, &ranges(&["127.0.0.0/8"])), None, "{host}");
    }
    // But to allow one address is to allow that one.
    assert!(refusal("http://127.0.0.1/", &ranges(&["::1/128"])).is_some());
    assert!(refusal("http://[::1]/", &ranges(&["127.0.0.2/32"])).is_some());
}

#[test]
fn names_are_not_judged_before_they_are_looked_up() {
    for host in ["example.test", "127.0.0.1.example.test", "0x7g", "256.1.1.1", "1.2.3.4.5", "a.1"]
    {
        assert_eq!(refusal(&format!("http://{host}/"), &[]), None, "{host}");
    }
}

#[tokio::test]
async fn a_forbidden_address_is_not_dialled_in_any_spelling() {
    let endpoint = Endpoint::start().await;
    let port = endpoint.address().port();
    let stage = Stage::new(HttpSettings { allow_targets: Vec::new(), ..settings() });
    for spelling in SPELLINGS {
        let outcome = stage.execute(&message(&format!("http://{spelling}:{port}/?q=1"))).await;
        assert_refused(&stage, &outcome, "loopback");
    }
    for (address, kind) in SPECIAL {
        let outcome = stage.execute(&message(&url(address))).await;
        assert_refused(&stage, &outcome, kind);
    }
    // The system's own resolver, which knows `localhost`.
    let outcome = stage.execute(&message(&format!("http://localhost:{port}/"))).await;
    assert_refused(&stage, &outcome, "loopback");
    assert_eq!(endpoint.connections(), 0);
}

#[tokio::test]
async fn an_allowed_address_is_dialled_in_every_spelling() {
    let endpoint = Endpoint::start().await;
    let port = endpoint.address().port();
    let stage = Stage::new(settings());
    // The last two need a gateway.
    let dialled = SPELLINGS
        .iter()
        .filter(|spelling| !spelling.contains("[64:") && !spelling.contains("[2002"));
    for spelling in dialled.chain(&["localhost"]) {
        let outcome = stage.execute(&message(&format!("http://{spelling}:{port}/"))).await;
        assert_eq!(outcome, Outcome::Done, "{spelling}");
    }
}

#[tokio::test]
async fn one_forbidden_answer_of_many_refuses_the_target() {
    let endpoint = Endpoint::start().await;
    let here = endpoint.address();
    let at = |address: &str| SocketAddr::new(address.parse().expect("an address"), here.port());
    let names = [
        ("first.test", &[at("10.0.0.1"), here][..]),
        ("last.test", &[here, here, at("169.254.169.254")][..]),
        ("mapped.test", &[here, at("::ffff:192.168.1.1")][..]),
        ("fine.test", &[here, at("127.0.0.2")][..]),
    ];
    let stage = Stage::new(HttpSettings { resolver: Names::resolver(names), ..settings() });
    let cases = [
        ("first.test", "private"),
        ("last.test", "a metadata service"),
        ("mapped.test", "private"),
    ];
    for (host, kind) in cases {
        let outcome = stage.execute(&message(&format!("http://{host}/"))).await;
        assert_refused(&stage, &outcome, kind);
    }
    assert_eq!(endpoint.connections(), 0);
    assert_eq!(stage.execute(&message("http://fine.test/")).await, Outcome::Done);
}

#[tokio::test]
async fn the_next_address_is_dialled_when_one_refuses() {
    let endpoint = Endpoint::start().await;
    let names = [("two.test", &[crate::stage::closed_port(), endpoint.address()][..])];
    let stage = Stage::new(HttpSettings { resolver: Names::resolver(names), ..settings() });
    assert_eq!(stage.execute(&message("http://two.test/")).await, Outcome::Done);
    assert_eq!(stage.calls(), [CallStatus::Http(200)]);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    for status in [301, 302, 303, 307, 308] {
        endpoint.then([Answer::status(status).header("location", &endpoint.url("/elsewhere"))]);
        let outcome = stage.execute(&message(&endpoint.url("/hook"))).await;
        assert!(matches!(outcome, Outcome::RetryLater { after: None, .. }), "{outcome:?}");
    }
    assert_eq!(endpoint.count(), 5);
    assert!(endpoint.asked().iter().all(|asked| asked.path == "/hook"));
}

fn own(bound: &str) -> OwnAddresses {
    let own = OwnAddresses::default();
    own.add(bound.parse().expect("an address"));
    own
}

#[test]
fn the_callers_own_address_is_forbidden_whatever_is_allowed() {
    let everything = ranges(&["0.0.0.0/0", "::/0"]);
    let cases: [(&str, &[&str], &[&str]); 6] = [
        (
            "127.0.0.1:80",
            &["http://127.0.0.1/", "http://localhost/", "http://[::1]/", "http://0.0.0.0:80/"],
            &["https://127.0.0.1/", "http://127.0.0.1:8080/", "http://127.0.0.2/"],
        ),
        ("[::1]:443", &["https://127.0.0.1/", "https://[::1]:443/"], &["http://[::1]/"]),
        (
            "0.0.0.0:81",
            &["http://127.9.9.9:81/", "http://[::1]:81/", "http://[::ffff:127.0.0.1]:81/"],
            &["http://10.0.0.1:81/", "http://127.0.0.1:80/"],
        ),
        ("[::]:81", &["http://127.0.0.1:81/", "http://[::1]:81/"], &["http://[fd00::1]:81/"]),
        (
            "10.0.0.1:81",
            &["http://10.0.0.1:81/", "http://10.1:81/", "http://[::ffff:10.0.0.1]:81/"],
            &["http://127.0.0.1:81/", "http://10.0.0.2:81/"],
        ),
        ("1.1.1.1:81", &["http://1.1.1.1:81/"], &["http://1.1.1.1/", "http://one.test:81/"]),
    ];
    for (bound, forbidden, fine) in cases {
        let own = own(bound);
        let why =
            |url: &str| target_forbidden(&Target::parse(url).expect("a target"), &everything, &own);
        for url in forbidden {
            let why = why(url).unwrap_or_default();
            assert!(why.contains("this daemon itself listens"), "{url} at {bound}: {why:?}");
        }
        for url in fine {
            assert_eq!(why(url), None, "{url} at {bound}");
        }
    }
}

/// Only looking them up, or even connecting, says where names lead to.
#[tokio::test]
async fn the_callers_own_address_is_not_called_by_any_name() {
    let endpoint = Endpoint::start().await;
    let here = endpoint.address();
    let elsewhere = SocketAddr::new(here.ip(), 9);
    let names = [("own.test", &[here][..]), ("among.test", &[elsewhere, here][..])];
    let resolver = Names::resolver(names);
    let stage = Stage::new(HttpSettings { resolver, own: own(&here.to_string()), ..settings() });
    for url in ["http://own.test/".to_owned(), "http://among.test/".to_owned(), endpoint.url("/")] {
        let outcome = stage.execute(&message(&url)).await;
        assert_refused(&stage, &outcome, "where this daemon itself listens: it");
    }
    assert_eq!(endpoint.connections(), 0);
}

/// An address of this machine that is not on loopback, if it has one. Nothing is sent.
fn address_of_the_machine() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("203.0.113.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

#[tokio::test]
async fn who_listens_on_all_addresses_is_not_called_at_any_of_them() {
    use tokio::io::AsyncReadExt;
    let Some(machine) = address_of_the_machine() else { return };
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.expect("a port");
    let bound = listener.local_addr().expect("an address");
    let own = own(&bound.to_string());
    let stage =
        Stage::new(HttpSettings { own, allow_targets: ranges(&["0.0.0.0/0"]), ..settings() });
    let outcome = stage.execute(&message(&format!("http://{machine}:{}/", bound.port()))).await;
    assert_refused(&stage, &outcome, "where this daemon itself listens: it");
    let (mut came, _) = listener.accept().await.expect("it was connected to");
    assert_eq!(came.read_to_end(&mut Vec::new()).await.expect("it ended"), 0, "nothing was sent");
}
