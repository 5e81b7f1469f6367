//! Machines whose root has replaced programs that the emulator needs: they get nothing of their
//! host, and end.

use crate::nodes::{between, boot, until_image};
use crate::support::{World, call, driver, start, until_state};
use sluice_cloud::Instance;
use sluice_emulator::ec2::{Ec2, Ec2Options, Isolation};
use sluice_pool::{CheckFact, InstanceState};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Puts a program in the place of others that notes what it sees, then runs the one it replaced.
const SPY: &str = r#"sudo sh -c 'cat >/opt/spy <<"END"
#!/bin/sh
{
    echo "${0##*/} ran in $(readlink /proc/self/ns/pid) $(readlink /proc/self/ns/net)"
    cat "MARK" "/..MARK" "/../..MARK"
    cat /proc/1/environ /proc/self/environ | tr "\0" "\n"
    true </dev/tty && echo terminal
} >>/var/seen 2>/dev/null
exec "$0.real" "$@"
END
chmod 755 /opt/spy
for name in umount mount pivot_root setpriv env rm tar; do
    real=$(command -v $name)
    mv $real $real.real
    cp /opt/spy $real
done
rm.real -f /var/seen
sync'"#;

/// A server that leaves the session of the process that started it.
const ESCAPE: &str = r#"sudo sh -c 'mv /usr/sbin/sshd /usr/sbin/sshd.real
cat >/usr/sbin/sshd <<"END"
#!/usr/bin/python3
import os, sys
os.setsid()
os.execv("/usr/sbin/sshd.real", ["/usr/sbin/sshd.real"] + sys.argv[1:])
END
chmod 755 /usr/sbin/sshd
sync'"#;

/// Stops the emulator and starts it again, and waits until the machine lets us in.
async fn restart(world: &mut World, machine: &Instance, isolation: &Isolation) {
    world.server.abort();
    world.ec2.shut_down().await;
    let options = Ec2Options { isolation: isolation.clone(), ..Ec2Options::new("") };
    let (ec2, endpoint, server) = start(world.directory.path(), options).await;
    (world.driver, world.ec2, world.server) = (driver(&endpoint, "hush"), ec2, server);
    world.endpoint = endpoint;
    let again = until_state(&world.driver, &machine.id, InstanceState::Running).await;
    assert!(matches!(world.check(&again).await, CheckFact::Passed { .. }));
}

/// C4: no program of a machine runs where it sees files of its host, its processes, its terminal or
/// the environment of the emulator: neither at a boot nor while an image is made.
#[tokio::test(flavor = "multi_thread")]
async fn programs_that_a_machine_replaced_see_nothing_of_its_host() {
    const SECRET: &str = "a secret of the host";
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "there is no environment to see");
    let public = tempfile::tempdir().unwrap();
    std::fs::set_permissions(public.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mark = public.path().join("mark");
    std::fs::write(&mark, SECRET).unwrap();
    for isolation in [Isolation::Full, Isolation::SharedNetwork] {
        let options = Ec2Options { isolation: isolation.clone(), ..Ec2Options::new("") };
        let mut world = World::with(options).await;
        let machine = boot(&world, &world.spec("one")).await;
        world.ssh(&machine, &SPY.replace("MARK", &mark.to_string_lossy()));
        restart(&mut world, &machine, &isolation).await;
        let create = [("Action", "CreateImage"), ("InstanceId", &machine.id.0), ("Name", "spied")];
        let (status, answer) = call(&world.endpoint, &create).await;
        assert_eq!(status, 200, "{answer}");
        let image = between(&answer, "<imageId>", "</imageId>");
        until_image(&world.endpoint, &image, "available").await;
        let namespaces =
            world.ssh(&machine, "echo $(readlink /proc/self/ns/pid) $(readlink /proc/self/ns/net)");
        let seen = world.ssh(&machine, "cat /var/seen");
        for program in ["rm", "env", "tar"] {
            let expected = format!("{program} ran in {}", namespaces.trim());
            assert!(seen.contains(&expected), "{isolation:?}: {expected}: {seen}");
        }
        for forbidden in [SECRET, "CARGO", "umount ran", "terminal"] {
            assert!(!seen.contains(forbidden), "{isolation:?}: {forbidden}: {seen}");
        }
        let sys = world.ssh(&machine, "ls /sys/fs/cgroup 2>/dev/null | wc -l");
        if isolation == Isolation::SharedNetwork {
            assert_eq!(sys.trim(), "0", "control groups of the host are seen");
        }
        world.end().await;
    }
}

/// Returns whether the process that is noted in a file of the machine runs; `None` without a note.
fn runs(note: &Path) -> Option<bool> {
    let text = std::fs::read_to_string(note).ok()?;
    let (process, _) = text.split_once(' ')?;
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    // One that has ended may wait for its parent.
    Some(!status.is_empty() && !status.contains("State:\tZ"))
}

/// C4: a machine ends when it is terminated, whatever its processes do.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_server_left_its_session_ends() {
    let mut world = World::new(8).await;
    let machine = boot(&world, &world.spec("one")).await;
    world.ssh(&machine, ESCAPE);
    restart(&mut world, &machine, &Isolation::Full).await;
    assert_eq!(world.ssh(&machine, "ps -o sid= -p 1").trim(), "1", "it is in the old session");
    let note = world.directory.path().join("ec2").join(&machine.id.0).join("first");
    let kept = world.directory.path().join("kept");
    std::fs::copy(note, &kept).unwrap();
    assert_eq!(runs(&kept), Some(true));
    let ec2: &Ec2 = &world.ec2;
    ec2.shut_down().await;
    assert_eq!(runs(&kept), Some(false), "it runs on");
    world.end().await;
}
