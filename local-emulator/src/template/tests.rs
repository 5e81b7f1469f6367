//! Our own template in full, and what happens with one that asks for something unknown.

use super::{
    AttributeType, DeploymentTarget, QueueKind, ResponseFormat, RouteMethod, TemplateError,
    TemplatePlan, parse,
};
use std::path::Path;
use std::time::Duration;

fn place() -> DeploymentTarget {
    DeploymentTarget::machine("http://127.0.0.1:9324/")
}

fn our_plan() -> TemplatePlan {
    super::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/template.yaml"), &place())
        .unwrap()
}

/// C4
#[test]
fn our_template_asks_for_nothing_that_this_machine_ignores() {
    assert_eq!(our_plan().ignored(), Vec::<String>::new());
    assert!(
        our_plan()
            .elsewhere()
            .iter()
            .any(|line| line.starts_with("ExecutorService (AWS::ECS::Service)"))
    );
}

/// C4: what is not done at all is not said to be provided in another way.
#[test]
fn what_one_machine_does_not_do_is_listed_apart() {
    let plan = our_plan();
    let first_word = |what: &String| what.split(' ').next().unwrap().to_owned();
    let absent: Vec<String> = plan.absent().keys().map(first_word).collect();
    assert_eq!(
        absent,
        [
            "alarms",
            "encryption",
            "expiry",
            "policies",
            "recovery",
            "rotation",
            "scaling",
            "throttling"
        ]
    );
    let whose =
        |word: &str| plan.absent().iter().find(|(what, _)| what.starts_with(word)).unwrap().1;
    assert!(
        whose("expiry").iter().all(|part| part.ends_with("(AWS::S3::Bucket)")),
        "{:?}",
        whose("expiry")
    );
    assert!(whose("alarms").iter().any(|part| part.ends_with("(AWS::CloudWatch::Alarm)")));
    let otherwise = |kind: &str| plan.elsewhere().iter().any(|line| line.contains(kind));
    assert!(
        !otherwise("AWS::CloudWatch::Alarm")
            && !otherwise("ScalingPolicy")
            && !otherwise("Serverless::HttpApi")
    );
}

/// C2
#[test]
fn the_table_has_its_keys_indexes_and_expiry() {
    let plan = our_plan();
    let [table] = plan.tables.as_slice() else { panic!("{:?}", plan.tables) };
    assert_eq!(
        (table.name.as_str(), table.ttl_attribute.as_deref()),
        ("sluice-records", Some("ttl"))
    );
    assert_eq!(table.arn, "arn:aws:dynamodb:us-east-1:000000000000:table/sluice-records");
    assert_eq!(
        (table.keys.hash.name.as_str(), table.keys.range.as_ref().unwrap().name.as_str()),
        ("pk", "sk")
    );
    let due = &table.indexes[0];
    assert_eq!((due.name.as_str(), due.projection.as_str()), ("due", "KEYS_ONLY"));
    assert_eq!(due.keys.range.as_ref().unwrap().kind, AttributeType::N);
    assert_eq!(table.indexes[1].keys.hash.name, "find_pk");
    assert_eq!(plan.buckets[0].name, "sluice-objects-000000000000");
}

/// C2
#[test]
fn every_queue_has_dead_letters_of_its_own_sort_after_five_receives() {
    let plan = our_plan();
    let live: Vec<_> = plan.queues.iter().filter(|queue| !queue.name.contains("-dead")).collect();
    assert_eq!((plan.queues.len(), live.len()), (22, 11));
    for queue in live {
        let redrive = queue.redrive.as_ref().unwrap();
        let dead = plan.queue(&redrive.dead_letter_arn).unwrap();
        assert_eq!(
            (redrive.receives_max, dead.kind, &dead.redrive),
            (5, queue.kind, &None),
            "{}",
            queue.name
        );
    }
    let events = plan.queues.iter().find(|queue| queue.name == "sluice-events.fifo").unwrap();
    assert_eq!(events.url, "http://127.0.0.1:9324/000000000000/sluice-events.fifo");
    assert_eq!(events.kind, QueueKind::Fifo);
}

/// C2: shorter, and a throttled invocation's messages come back while it still waits.
#[test]
fn a_queue_hides_a_message_for_six_times_its_functions_time_limit() {
    let plan = our_plan();
    for source in &plan.sources {
        let timeout = plan.function(&source.function).unwrap().timeout;
        let hidden = Duration::from_secs(
            plan.queue(&source.queue_arn).unwrap().visibility_timeout_seconds.into(),
        );
        assert!(
            hidden >= 6 * timeout,
            "{source:?} hides for {hidden:?}, its function may take {timeout:?}"
        );
        assert!(
            source.response_format == ResponseFormat::BatchItemFailures && source.batch_size == 10,
            "{source:?}"
        );
    }
    let dead: Vec<_> =
        plan.sources.iter().filter(|source| source.queue_arn.contains("-dead")).collect();
    assert!(dead.len() == 11 && dead.iter().all(|source| source.function == "timer"));
}

/// C1
#[test]
fn every_function_knows_every_queue_and_its_own_name() {
    let plan = our_plan();
    let ids: Vec<_> = plan.functions.iter().map(|function| function.id.as_str()).collect();
    let expected = [
        "webhook", "api", "intake", "gate", "tenant", "merger", "launcher", "images", "reporter",
        "timer",
    ];
    assert_eq!(ids, expected);
    let executor = plan.executor.as_ref().unwrap();
    let environments =
        plan.functions.iter().map(|function| &function.environment).chain([&executor.environment]);
    for environment in environments {
        let queues = environment.keys().filter(|name| name.starts_with("SLUICE_QUEUE_")).count();
        assert_eq!((queues, environment["SLUICE_TABLE"].as_str()), (11, "sluice-records"));
        assert_eq!(environment["SLUICE_KEY"], plan.keys[0].id);
        assert!(
            environment["SLUICE_QUEUE_BUILDS_HIGH"].ends_with("/000000000000/sluice-builds-high")
        );
    }
    let webhook = plan.function("webhook").unwrap();
    assert_eq!(
        (webhook.reserved_concurrency, webhook.timeout),
        (Some(50), Duration::from_secs(10))
    );
    assert_eq!(webhook.arn, "arn:aws:lambda:us-east-1:000000000000:function:sluice-webhook");
}

/// C1: each source of the timer may run as often as it is allowed, and the sweep besides.
#[test]
fn the_timers_reserved_concurrency_covers_all_its_sources() {
    let plan = our_plan();
    let timer = plan.function("timer").unwrap();
    let sources = plan.sources.iter().filter(|source| source.function == "timer");
    let sum: u32 = sources.map(|source| source.concurrency_max.unwrap()).sum();
    assert!(timer.reserved_concurrency.unwrap() > sum, "{sum}");
    assert_eq!(timer.asynchronous_retries, 0);
    assert_eq!(plan.schedules.len(), 1);
    assert_eq!(
        (plan.schedules[0].function.as_str(), plan.schedules[0].period),
        ("timer", Duration::from_secs(60))
    );
}

/// C5
#[test]
fn the_webhook_has_one_route_and_the_api_the_others() {
    let plan = our_plan();
    let webhook: Vec<_> = plan.routes.iter().filter(|route| route.function == "webhook").collect();
    assert_eq!(webhook.len(), 1);
    assert_eq!(webhook[0].method, RouteMethod::One("POST".into()));
    assert_eq!(webhook[0].path, "/api/connection/{connection}/payload");
    assert_eq!(plan.routes.iter().filter(|route| route.function == "api").count(), 7);
}

/// C4
#[test]
fn what_the_closed_list_does_not_name_is_ignored_aloud() {
    let plan = parse(
        "
        Rules: {}
        Resources:
          A: { Type: 'AWS::SQS::Queue', Condition: C, Properties: { KmsMasterKeyId: k, RedriveAllowPolicy: { x: 1 } } }
          B: { Type: 'AWS::Kinesis::Stream' }
        ",
        &place(),
    )
    .unwrap();
    let expected = [
        "section Rules",
        "A (AWS::SQS::Queue): Condition",
        "A (AWS::SQS::Queue): KmsMasterKeyId",
        "A (AWS::SQS::Queue): RedriveAllowPolicy.x",
        "B (AWS::Kinesis::Stream)",
    ];
    assert_eq!(plan.ignored(), expected);
    assert_eq!(plan.queues[0].name, "sluice-A");
}

/// C4
#[test]
fn intrinsic_functions_work_in_short_and_long_form() {
    let queue = |name: &str| {
        let text = format!(
            "
            Parameters: {{ P: {{ Type: String, Default: d }}, L: {{ Type: CommaDelimitedList, Default: 'x, y' }} }}
            Resources:
              Q: {{ Type: 'AWS::SQS::Queue', Properties: {{ QueueName: {name} }} }}
              R: {{ Type: 'AWS::SQS::Queue', Properties: {{ QueueName: r }} }}
            "
        );
        parse(&text, &place()).map(|plan| plan.queues[0].name.clone())
    };
    assert_eq!(queue("!Sub '${AWS::StackName}-${P}-${!P}'").unwrap(), "sluice-d-${P}");
    assert_eq!(queue("!Sub ['${a}.${R.QueueName}', { a: !Ref P }]").unwrap(), "d.r");
    assert_eq!(
        queue("{ 'Fn::Join': ['-', [a, { Ref: P }, !GetAtt [R, QueueName]]] }").unwrap(),
        "a-d-r"
    );
    assert_eq!(queue("!Join ['+', !Ref L]").unwrap(), "x+y");
    for wrong in [
        "!Ref Nowhere",
        "!Sub '${P'",
        "!ImportValue x",
        "!GetAtt Q.QueueName",
        "!GetAtt R.Colour",
        "!Ref L",
    ] {
        assert!(matches!(queue(wrong), Err(TemplateError::Shape { .. })), "{wrong}");
    }
}
