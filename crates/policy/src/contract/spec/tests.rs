use super::*;

fn contract(text: &str) -> Result<Contract, SpecError> {
    Spec::parse(text)?.contract(None, Bought::default())
}

fn error(text: &str) -> String {
    contract(text).expect_err("it should be refused").to_string()
}

#[test]
fn two_numbers_are_a_contract() {
    let contract = contract("iops = 3000\nmib_per_s = 125").expect("it says all that is needed");
    assert_eq!(contract.name, "custom");
    assert_eq!(contract.paid_iops(), Some(3000));
    assert_eq!(contract.paid_bytes_per_sec(), Some(125 * MIB));
    assert_eq!(contract.op_bytes_max, 256 * KIB);
    assert_eq!(contract.latency, Latency::default());
    assert_eq!(contract.assumed, ["latency"]);
}

#[test]
fn reads_and_writes_may_be_counted_apart() {
    let text = "read_iops = { included = 250, depth_s = 0.1 }\nwrite_iops = 300\n\
                write_mib_per_s = { included = { per_iops = 0.25 } }\nmib_per_s = 125";
    let limit = |counts, rate_per_sec, depth| Limit { counts, rate_per_sec, depth };
    let contract = contract(text).expect("it says all that is needed");
    assert_eq!(
        contract.limits,
        [
            limit(Counted::Bytes, 125 * MIB, 125 * MIB),
            limit(Counted::ReadOps, 250, 25),
            limit(Counted::WriteOps, 300, 300),
            limit(Counted::WriteBytes, 75 * MIB, 75 * MIB),
        ]
    );
    assert_eq!((contract.paid_iops(), contract.paid_bytes_per_sec()), (Some(250), Some(75 * MIB)));
    assert!(error("read_iops = { included = 5, depth_s = 0.0 }").contains("depth_s"));
}

#[test]
fn nothing_at_all_is_unlimited() {
    assert!(contract("").expect("nothing contradicts itself").limits.is_empty());
}

#[test]
fn a_formula_is_a_sum_between_its_bounds() {
    let formula = Formula {
        base: Some(140.0),
        per_gib: Some(0.28),
        per_iops: Some(0.25),
        min: Some(200.0),
        max: Some(1200.0),
        ..Formula::default()
    };
    let at = |gib: u64, iops| formula.at(Some(Bytes(gib * GIB)), iops);
    assert_eq!(at(10, 0), Some(200));
    assert_eq!(at(1000, 0), Some(420));
    assert_eq!(at(1000, 100), Some(445));
    assert_eq!(at(60_000, 0), Some(1200));
    assert_eq!(formula.at(None, 0), None);
}

#[test]
fn a_bucket_holds_a_second_or_what_the_spec_says_and_an_operation_at_least() {
    let depths = |text: &str| -> Vec<_> {
        contract(text).expect("it makes sense").limits.iter().map(|limit| limit.depth).collect()
    };
    assert_eq!(depths("iops = 3000\nmib_per_s = 125"), [3000, 125 * MIB]);
    let shallow = "iops = { included = 500, depth_s = 0.1 }\n\
                   mib_per_s = { included = 20, depth_s = 0.001 }";
    assert_eq!(depths(shallow), [50, 256 * KIB]);
    assert_eq!(depths("iops = { included = 5, depth_s = 0.1 }"), [1]);
    let burst = "iops = { included = 100, burst = { rate = 3000, credits = 9000 }, depth_s = 2 }";
    assert_eq!(depths(burst), [6000, 9000]);
    for depth in ["0", "-1", "nan", "inf"] {
        let text =
            format!("iops = {{ included = 5, depth_s = {depth}.0 }}").replace("nan.0", "nan");
        let refused = error(&text.replace("inf.0", "inf"));
        assert!(refused.contains("depth_s"), "{refused}");
    }
}

#[test]
fn refusals_name_what_was_found_and_what_is_accepted() {
    let sold = "name = 'io9'\nsize_gib = { min = 4, max = 100 }\n\
                iops = { buy = { per_gib = 50, min = 100, max = 64000 } }\nmib_per_s = 500";
    let spec = Spec::parse(sold).expect("it is a spec");
    let refused = |gib: Option<u64>, bought| {
        let error = spec.contract(gib.map(|gib| Bytes(gib * GIB)), bought);
        let error = error.expect_err("it should be refused");
        format!("[{}] {error}", error.key())
    };
    let iops = |iops| Bought { iops: Some(iops), mib_per_s: None };
    assert_eq!(
        refused(Some(10), iops(501)),
        "[iops] contract io9: iops = 501 was found; accepted are 100 to 500"
    );
    assert_eq!(
        refused(None, iops(70_000)),
        "[iops] contract io9: iops = 70000 was found; accepted are 100 to 64000"
    );
    assert_eq!(
        refused(Some(10), Bought::default()),
        "[iops] contract io9: no iops given, and it has to be bought; accepted are 100 to 500"
    );
    assert_eq!(
        refused(Some(200), iops(500)),
        "[size] contract io9: a size of 200 GiB was found; accepted are 4 GiB to 100 GiB"
    );
    assert_eq!(
        refused(Some(10), Bought { iops: Some(500), mib_per_s: Some(1) }),
        "[mib_per_s] contract io9: mib_per_s = 1 was found; its mib_per_s cannot be chosen"
    );
}

#[test]
fn a_rate_that_grows_with_the_volume_asks_for_its_size() {
    let error = contract("iops = { included = { per_gib = 3 } }").expect_err("no size");
    assert_eq!(error.key(), "size");
    assert_eq!(
        error.to_string(),
        "contract custom: its iops follow from the volume's size, and no size is given"
    );
}

#[test]
fn contradictions_are_refused() {
    assert!(error("iops = 0").contains("admit nothing"));
    assert!(error("iops = -1").contains("negative"));
    assert!(error("iops = { }").contains("neither included nor for sale"));
    assert!(error("op_kib_max = 0").contains("op_kib_max"));
    let latency = "p1_us = 1\np50_us = 5\np90_us = 4\np99_us = 9\np999_us = 9\n";
    let both = format!("[latency.read]\n{latency}[latency.write]\n{latency}");
    assert!(error(&both).contains("latency.read do not ascend"));
}

#[test]
fn figures_beyond_all_measure_do_not_panic() {
    let vast = i64::MAX;
    let text = format!(
        "iops = {vast}\nmib_per_s = {{ included = {vast}, burst = {{ rate = 1e300, credits = {vast} }} }}\n\
         size_gib = {{ min = 0, max = {vast} }}\n[disk]\ncapacity_gib = {vast}\nrpm = 1\n\
         seek_track_us = {vast}\nseek_full_us = {vast}\ntransfer_mib_per_s = {vast}"
    );
    let spec = Spec::parse(&text).expect("it is a spec");
    let contract = spec.contract(Some(Bytes(u64::MAX)), Bought::default()).expect("it is vast");
    assert_eq!(contract.paid_bytes_per_sec(), Some(u64::MAX));
}

#[test]
fn a_typing_error_is_placed() {
    let parsed = Spec::parse("name = 'x'\niops = 'many'");
    let Err(SpecError::Syntax(error)) = parsed else { panic!("{parsed:?}") };
    assert_eq!(error.message(), "invalid type: string \"many\", expected a number or a table");
    assert_eq!(error.span(), Some(18..24));
    assert!(Spec::parse("iop = 3").expect_err("unknown").to_string().contains("iop"));
}
