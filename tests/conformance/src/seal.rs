//! Checks of encryption at rest, and of the two ports without a service: randomness and time.

use crate::check::{Check, Needs, Outcome, TestPorts, checks, equal, holds, refused};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) fn checks() -> Vec<Check> {
    checks![Needs::Seal;
        what_is_sealed_opens_under_its_context_alone,
        what_was_changed_does_not_open,
        a_sealed_text_shows_nothing,
        the_largest_secret_can_be_sealed,
        tokens_are_32_digits_and_never_drawn_twice,
        the_clock_does_not_go_back,
    ]
}

async fn what_is_sealed_opens_under_its_context_alone(target: Arc<TestPorts>) -> Outcome {
    let seal = &target.ports.seal;
    let sealed = seal.seal("webhook-secret", b"plain").await?;
    let opened = seal.open("webhook-secret", &sealed).await?;
    equal("what was sealed", opened.as_slice(), b"plain")?;
    let other = seal.open("private-key", &sealed).await;
    refused("opening it as something else", other)?;
    refused("opening it as nothing", seal.open("", &sealed).await)
}

async fn what_was_changed_does_not_open(target: Arc<TestPorts>) -> Outcome {
    let seal = &target.ports.seal;
    let sealed = seal.seal("context", b"plain").await?;
    for place in [0, sealed.len() / 2, sealed.len() - 1] {
        let mut changed = sealed.clone();
        changed[place] ^= 1;
        let opened = seal.open("context", &changed).await;
        refused(&format!("byte {place} changed"), opened)?;
    }
    refused("random bytes", seal.open("context", b"never sealed").await)?;
    let opened = seal.open("context", &sealed).await?;
    equal("the unchanged text", opened.as_slice(), b"plain")
}

async fn a_sealed_text_shows_nothing(target: Arc<TestPorts>) -> Outcome {
    let seal = &target.ports.seal;
    let plain = b"a secret of many letters";
    let sealed = seal.seal("context", plain).await?;
    let shown = sealed.windows(plain.len()).any(|window| window == plain);
    holds("the plain text is not in it", !shown)?;
    let again = seal.seal("context", plain).await?;
    holds("the same text never looks the same", sealed != again)
}

async fn the_largest_secret_can_be_sealed(target: Arc<TestPorts>) -> Outcome {
    let plain = vec![0xA5; 4096];
    let sealed = target.ports.seal.seal("private-key", &plain).await?;
    let opened = target.ports.seal.open("private-key", &sealed).await?;
    equal("4096 bytes", &opened, &plain)
}

async fn tokens_are_32_digits_and_never_drawn_twice(target: Arc<TestPorts>) -> Outcome {
    let tokens: BTreeSet<String> = (0..1_000).map(|_| target.ports.entropy.token()).collect();
    equal("different tokens", &tokens.len(), &1_000)?;
    let well_formed = |token: &String| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        token.len() == 32 && token.bytes().all(digit)
    };
    holds("all have 32 hexadecimal digits", tokens.iter().all(well_formed))
}

async fn the_clock_does_not_go_back(target: Arc<TestPorts>) -> Outcome {
    let before = target.ports.clock.now();
    target.moment().await;
    holds("time passed", target.ports.clock.now() > before)
}
