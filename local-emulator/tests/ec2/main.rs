//! EC2 through its front: signed calls by the real driver, machines one can log in to, and a killed
//! emulator.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

mod hostile;
mod nodes;
mod reach;
mod support;

use sluice_cloud::{
    CloudDriver, CloudError, CloudImageFilter, LaunchSpec, LoginKey, SshEndpoint, ssh, user_data,
};
use sluice_emulator::ec2::{Boot, Ec2Options, Isolation, LaunchFault};
use sluice_keys::SshKeyPair;
use sluice_pool::{CheckFact, InstanceId, InstanceState};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{
    World, call, driver, emulator, emulator_of, filter, spec, ssh_with, start, target,
    until_checked, until_checked_as, until_state,
};

/// L2.6, Z1.8: launched, booted, checked, used, terminated.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_boots_shows_its_host_keys_lets_us_in_and_ends() {
    let world = World::new(8).await;
    let launched = world.driver.launch(&world.spec("one")).await.unwrap();
    let running = world.until(&launched.id, InstanceState::Running).await;
    assert_eq!(
        (running.az.as_deref(), running.fact_in(None).node),
        (Some("us-east-1b"), Some("one".into()))
    );
    let CheckFact::Passed { host_keys } = world.check(&running).await else { panic!("no login") };
    let kinds: Vec<_> = host_keys.iter().map(|key| key.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["ssh-ed25519", "ecdsa-sha2-nistp256"]);
    assert_eq!(
        world
            .ssh(&running, "pwd; echo mine > /tmp/x; cat /tmp/x; whoami; touch /usr/x || echo kept; sudo whoami")
            .trim(),
        "/home/zuul\nmine\nzuul\nkept\nroot"
    );
    world.driver.terminate(None, std::slice::from_ref(&running.id)).await.unwrap();
    world.until(&running.id, InstanceState::Terminated).await;
    assert!(
        ssh::scan_host_keys(&target(&running), Duration::from_secs(5)).await.is_err(),
        "the server is gone"
    );
    world
        .driver
        .terminate(None, &[running.id.clone(), InstanceId("i-unknown".into())])
        .await
        .unwrap();
    world.end().await;
}

/// Two machines do not see each other's files or processes.
#[tokio::test(flavor = "multi_thread")]
async fn machines_do_not_see_each_other() {
    let world = World::new(8).await;
    let one = world.driver.launch(&world.spec("one")).await.unwrap();
    let two = world.driver.launch(&world.spec("two")).await.unwrap();
    let (one, two) = (
        world.until(&one.id, InstanceState::Running).await,
        world.until(&two.id, InstanceState::Running).await,
    );
    let (CheckFact::Passed { host_keys: first }, CheckFact::Passed { host_keys: second }) =
        (world.check(&one).await, world.check(&two).await)
    else {
        panic!("no login")
    };
    assert!(first.iter().all(|key| !second.contains(key)));
    world.ssh(
        &one,
        "sudo touch /usr/mark; touch /tmp/mark ~/mark; nohup sleep 600 >/dev/null 2>&1 &",
    );
    assert_eq!(
        world.ssh(&two, "ls -d /usr/mark; ls /tmp ~; ps ax | grep -c '[s]leep 600'").trim(),
        "/home/zuul:\n\n/tmp:\n0"
    );
    world.end().await;
}

/// C4: most machines have an SSH server of their own on every address; nodes boot beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_boots_on_another_port_where_its_own_is_taken_on_every_address() {
    let everywhere = std::net::TcpListener::bind(("0.0.0.0", 0)).unwrap();
    let port = everywhere.local_addr().unwrap().port();
    let options =
        Ec2Options { ssh_port: port, isolation: Isolation::SharedNetwork, ..Ec2Options::new("") };
    let world = World::with(options).await;
    let launched = world.driver.launch(&world.spec("one")).await.unwrap();
    let running = world.until(&launched.id, InstanceState::Running).await;
    assert_ne!(target(&running).port, port);
    assert!(matches!(world.check(&running).await, CheckFact::Passed { .. }));
    assert_eq!(world.ssh(&running, "whoami").trim(), "zuul");
    world.end().await;
}

/// Of calls with one token, in whatever order and at once, all name the same machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_launches_once_however_often_it_is_called() {
    let world = World::new(8).await;
    let spec = world.spec("race");
    let calls = (0..16).map(|_| {
        let (driver, spec) = (world.driver.clone(), spec.clone());
        tokio::spawn(async move { driver.launch(&spec).await.unwrap().id })
    });
    let mut ids = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        ids.push(call.await.unwrap());
    }
    ids.dedup();
    assert_eq!((ids.len(), world.list().await.len()), (1, 1));
    let other = LaunchSpec { instance_type: "t3.large".into(), ..spec };
    assert!(matches!(world.driver.launch(&other).await, Err(CloudError::TokenTaken { .. })));
    world.end().await;
}

/// Z1.5: the cloud has a limit of its own, and other refusals.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_distinct_errors() {
    let world = World::new(1).await;
    world.ec2.add_fault(LaunchFault::Refused { code: "InsufficientInstanceCapacity".into() });
    assert!(matches!(
        world.driver.launch(&world.spec("a")).await,
        Err(CloudError::NoCapacity { .. })
    ));
    world.ec2.add_fault(LaunchFault::Boots(Boot::Never));
    let silent = world.driver.launch(&world.spec("a")).await.unwrap();
    assert!(matches!(world.driver.launch(&world.spec("b")).await, Err(CloudError::Quota { .. })));
    let unknown = LaunchSpec { image_id: "ami-0".into(), ..world.spec("c") };
    assert!(matches!(world.driver.launch(&unknown).await, Err(CloudError::Permanent { .. })));
    let silent = world.until(&silent.id, InstanceState::Running).await;
    assert!(
        ssh::scan_host_keys(&target(&silent), Duration::from_secs(5)).await.is_err(),
        "it never boots"
    );
    world
        .driver
        .create_tags(
            std::slice::from_ref(&silent.id.0),
            &BTreeMap::from([("more".into(), "<&>".into())]),
        )
        .await
        .unwrap();
    assert_eq!(world.list().await[0].tags["more"], "<&>");
    let images = world
        .driver
        .images(&CloudImageFilter { names: vec!["debian-*".into()], ..CloudImageFilter::default() })
        .await
        .unwrap();
    assert_eq!(images[0].id, "ami-debian12");
    world.driver.terminate(None, std::slice::from_ref(&silent.id)).await.unwrap();
    world.until(&silent.id, InstanceState::Terminated).await;
    let mute = LaunchSpec { image_id: "ami-silent".into(), ..world.spec("d") };
    let mute = world.driver.launch(&mute).await.unwrap();
    let mute = world.until(&mute.id, InstanceState::Running).await;
    let target = SshEndpoint { address: mute.private_ip.unwrap(), port: 22 };
    assert!(
        ssh::scan_host_keys(&target, Duration::from_secs(5)).await.is_err(),
        "an image whose machines never answer"
    );
    world.end().await;
}

/// A wrong secret gets nothing done.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_a_wrong_signature_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (ec2, endpoint, server) = start(directory.path(), Ec2Options::new("")).await;
    let stranger = driver(&endpoint, "guess");
    assert!(matches!(stranger.launch(&spec("x", "key")).await, Err(CloudError::Unknown { .. })));
    assert_eq!(driver(&endpoint, "hush").describe(None, &filter()).await.unwrap(), []);
    server.abort();
    ec2.shut_down().await;
}

/// Not a test: the emulator as a process of its own, for the next one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by another test"]
async fn an_emulator_to_kill() {
    let Ok(directory) = std::env::var("EC2_DIRECTORY") else {
        return;
    };
    let (_ec2, endpoint, server) = start(Path::new(&directory), Ec2Options::new("")).await;
    println!("\nlistening {endpoint}");
    server.await.unwrap();
}

/// C4: machines work without root, which alone may use ports below 1024 and change the user.
#[tokio::test(flavor = "multi_thread")]
async fn machines_work_without_root() {
    let directory = tempfile::tempdir().unwrap();
    let (program, state) = (directory.path().join("emulator"), directory.path().join("state"));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::create_dir(&state).unwrap();
    let mut command = match std::fs::metadata("/proc/self").unwrap().uid() {
        0 => nodes::unprivileged(directory.path(), &state),
        _ => Command::new("env"),
    };
    command.arg(&program).current_dir(directory.path());
    let emulator = emulator_of(&mut command, &state);
    let pair = SshKeyPair::generate("test").unwrap();
    let key = LoginKey::from_openssh(pair.private().expose_text().unwrap()).unwrap();
    let driver = driver(&emulator.endpoint, "hush");
    for user in ["root", "zuul"] {
        let user_data = user_data::cloud_config(user, &[pair.public_line().to_owned()]);
        let launched = driver.launch(&LaunchSpec { user_data, ..spec(user, "") }).await.unwrap();
        let running = until_state(&driver, &launched.id, InstanceState::Running).await;
        assert!(target(&running).port > 1_023);
        let fact = until_checked_as(user, &running, &key).await;
        assert!(matches!(fact, CheckFact::Passed { .. }), "{user}: {fact:?}");
        let login = format!("{user}@{}", running.private_ip.as_ref().unwrap());
        let port = target(&running).port.to_string();
        let said = ssh_with(directory.path(), &pair, &["-tt", "-p", &port, &login, "tty"]);
        assert!(said.contains("/dev/pts/"), "{user} is given no terminal: {said}");
        let create = [("Action", "CreateImage"), ("InstanceId", &launched.id.0), ("Name", user)];
        let (status, answer) = call(&emulator.endpoint, &create).await;
        assert_eq!(status, 200, "{answer}");
        let image = nodes::between(&answer, "<imageId>", "</imageId>");
        nodes::until_image(&emulator.endpoint, &image, "available").await;
        driver.terminate(None, std::slice::from_ref(&launched.id)).await.unwrap();
        until_state(&driver, &launched.id, InstanceState::Terminated).await;
    }
}

/// Killing the emulator at any moment loses nothing: its machines go on and are known again.
#[tokio::test(flavor = "multi_thread")]
async fn machines_and_tokens_outlive_a_killed_emulator() {
    let directory = tempfile::tempdir().unwrap();
    let pair = SshKeyPair::generate("test").unwrap();
    let key = LoginKey::from_openssh(pair.private().expose_text().unwrap()).unwrap();
    let mut first = emulator(directory.path());
    let driver_of_first = driver(&first.endpoint, "hush");
    let one = driver_of_first.launch(&spec("one", pair.public_line())).await.unwrap();
    let running = until_state(&driver_of_first, &one.id, InstanceState::Running).await;
    let before = until_checked(&running, &key).await;
    let two = driver_of_first.launch(&spec("two", pair.public_line())).await.unwrap();
    first.kill();

    let second = emulator(directory.path());
    let again = driver(&second.endpoint, "hush");
    assert_eq!(again.launch(&spec("one", pair.public_line())).await.unwrap().id, one.id);
    assert_eq!(
        until_checked(&running, &key).await,
        before,
        "the same machine with the same host keys"
    );
    let other = until_state(&again, &two.id, InstanceState::Running).await;
    assert!(
        matches!(until_checked(&other, &key).await, CheckFact::Passed { .. }),
        "one that was killed while starting boots"
    );
    again.terminate(None, &[one.id.clone(), two.id.clone()]).await.unwrap();
    until_state(&again, &one.id, InstanceState::Terminated).await;
    until_state(&again, &two.id, InstanceState::Terminated).await;
    assert!(
        ssh::scan_host_keys(&target(&running), Duration::from_secs(5)).await.is_err(),
        "an adopted server is ended too"
    );
}
