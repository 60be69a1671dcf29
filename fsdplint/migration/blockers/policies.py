"""Blockers about wrapping policies, `enable_wrap` and `wrap`."""

from fsdplint.migration.blockers import Blocker, advice

WRAP_NOT_CALLED = Blocker(
    "FSDP201-wrap-not-called",
    "`wrap` is not called here",
    advice.REPLACE_ENABLE_WRAP,
)
WRAP_OUTSIDE_BLOCK = Blocker(
    "FSDP201-wrap-outside-block",
    "which `enable_wrap` block this `wrap` runs in cannot be seen: shard the module with "
    "`fully_shard` itself",
    advice.REPLACE_ENABLE_WRAP,
)
TWO_SIZE_POLICIES = Blocker(
    "FSDP201-two-size-policies",
    "two policies by size with different leaf modules",
    advice.WRITE_POLICY,
)
POLICY_FROM_BRANCHES = Blocker(
    "FSDP201-policy-from-branches",
    "the wrapping policy is chosen by several branches",
    advice.WRITE_POLICY,
)
POLICY_UNSUPPORTED = Blocker(
    "FSDP201-policy-unsupported",
    "this wrapping policy is not migrated yet",
    advice.WRITE_POLICY,
)
CUSTOM_POLICY_UNSEEN = Blocker(
    "FSDP201-custom-policy-unseen",
    "whether this CustomPolicy only says yes or no cannot be seen",
    advice.PREDICATE,
)
POLICY_ARGUMENT_UNSUPPORTED = Blocker(
    "FSDP201-policy-argument-unsupported",
    "this argument of the policy is not migrated yet",
    advice.WRITE_POLICY,
)
POLICY_UNSEEN = Blocker(
    "FSDP201-policy-unseen",
    "where the wrapping policy `{policy}` comes from cannot be seen",
    advice.WRITE_POLICY,
)
POLICY_MAY_BE_OTHER = Blocker(
    "FSDP201-policy-may-be-other",
    "this wrapping policy may also be `{code}`, whose code cannot be seen",
    advice.WRITE_POLICY,
)
POLICIES_WITH_FUNCTION = Blocker(
    "FSDP201-policies-with-function",
    "several wrapping policies, of which one is a function",
    advice.WRITE_POLICY,
)
POLICY_SHARED = Blocker(
    "FSDP201-policy-shared",
    "this wrapping policy is used in several places",
    advice.WRITE_POLICY,
)
POLICY_ARGUMENTS = Blocker(
    "FSDP201-policy-arguments",
    "the arguments of this policy cannot be read here",
    advice.WRITE_POLICY,
)
CUSTOM_POLICY_SHARED = Blocker(
    "FSDP201-custom-policy-shared",
    "this CustomPolicy is also used at line {line}, which FSDP2 has no form for",
    advice.PREDICATE,
)
POLICY_OWNER_UNSEEN = Blocker(
    "FSDP201-policy-owner-unseen",
    "whose `{method}` this is, cannot be seen: the object may be a library's",
    advice.WRITE_POLICY,
)
POLICY_BASE_UNSEEN = Blocker(
    "FSDP201-policy-base-unseen",
    "`{base}`, whose code cannot be seen, may have its own `{method}`",
    advice.WRITE_POLICY,
)
POLICY_DECORATED = Blocker(
    "FSDP201-policy-decorated",
    "what a decorator makes of this method, which gives a wrapping policy",
    advice.WRITE_POLICY,
)
POLICY_LOOKED_UP = Blocker(
    "FSDP201-policy-looked-up",
    "a method that gives a wrapping policy, looked up by its name",
    advice.WRITE_POLICY,
)
POLICY_USE_UNSEEN = Blocker(
    "FSDP201-policy-use-unseen",
    "what becomes of this wrapping policy cannot be seen",
    advice.WRITE_POLICY,
)
IGNORED_WITH_SIZE_POLICY = Blocker(
    "FSDP201-ignored-with-size-policy",
    "ignored parameters, which a policy by size does not count",
    advice.WRITE_POLICY,
)
PARAM_INIT_FN_WITH_POLICY = Blocker(
    "FSDP201-param-init-fn-with-policy",
    "`param_init_fn` together with a policy by size or of three parameters",
    advice.META_VALUES,
)
ENABLE_WRAP_NOT_HEAD = Blocker(
    "FSDP201-enable-wrap-not-head",
    "`enable_wrap` that is not the only head of a `with` block",
    advice.REPLACE_ENABLE_WRAP,
)
ENABLE_WRAP_CLASS = Blocker(
    "FSDP201-enable-wrap-class",
    "`enable_wrap` with a class that cannot be read here",
    advice.REPLACE_ENABLE_WRAP,
)
POLICY_CALLED = Blocker(
    "FSDP201-policy-called",
    "`{name}` is called here, which raises TypeError: FSDP calls it for each module with "
    "`module`, `recurse` and `nonwrapped_numel`",
    "Bind its arguments: `functools.partial({name}, ...)`.",
)
