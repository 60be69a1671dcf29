"""Blockers about wrapping policies, `enable_wrap` and `wrap`."""

from fsdplint.migration.blockers import Blocker, advice

WRAP_NOT_CALLED = Blocker(
    "FSDP201-wrap-not-called",
    "`wrap` is not called here",
    advice.REPLACE_ENABLE_WRAP,
)
WRAP_OUTSIDE_BLOCK = Blocker(
    "FSDP201-wrap-outside-block",
    "the code does not show in which `enable_wrap` block this `wrap` runs: shard the module with "
    "`fully_shard` itself",
    advice.REPLACE_ENABLE_WRAP,
)
TWO_SIZE_POLICIES = Blocker(
    "FSDP201-two-size-policies",
    "this file has two policies by size with different leaf modules",
    advice.WRITE_POLICY,
)
POLICY_FROM_BRANCHES = Blocker(
    "FSDP201-policy-from-branches",
    "several branches choose the wrapping policy",
    advice.WRITE_POLICY,
)
POLICY_ARGUMENT = Blocker(
    "FSDP201-policy-argument",
    "`{policy}` takes no argument `{argument}`: FSDP(...) raises TypeError",
    "Remove the argument, or choose the policy that takes it.",
)
POLICY_UNSUPPORTED = Blocker(
    "FSDP201-policy-unsupported",
    "this wrapping policy has no rewrite",
    advice.WRITE_POLICY,
)
CUSTOM_POLICY_UNSEEN = Blocker(
    "FSDP201-custom-policy-unseen",
    "the code does not show which arguments this CustomPolicy gives single units",
    advice.PREDICATE,
)
CUSTOM_POLICY_ARGUMENT = Blocker(
    "FSDP201-custom-policy-argument",
    "this CustomPolicy gives single units their own `{argument}`",
    advice.PREDICATE,
)
CUSTOM_POLICY_STRATEGY = Blocker(
    "FSDP201-custom-policy-strategy",
    "the `sharding_strategy` that this CustomPolicy gives single units is only known at run time",
    "Decide which strategy these units get, and write it in the policy: "
    "`ShardingStrategy.FULL_SHARD` or `ShardingStrategy.SHARD_GRAD_OP`.",
)
CUSTOM_POLICY_OTHER_MESH = Blocker(
    "FSDP201-custom-policy-other-mesh",
    "this CustomPolicy gives single units a strategy for which they need another mesh than the model",
    advice.PREDICATE,
)
POLICY_ARGUMENT_UNSUPPORTED = Blocker(
    "FSDP201-policy-argument-unsupported",
    "this argument of the policy has no rewrite",
    advice.WRITE_POLICY,
)
POLICY_UNSEEN = Blocker(
    "FSDP201-policy-unseen",
    "the code that makes the wrapping policy `{policy}` cannot be seen",
    advice.WRITE_POLICY,
)
POLICY_MAY_BE_OTHER = Blocker(
    "FSDP201-policy-may-be-other",
    "this wrapping policy may also be `{code}`, whose code cannot be seen",
    advice.WRITE_POLICY,
)
POLICIES_WITH_FUNCTION = Blocker(
    "FSDP201-policies-with-function",
    "there are several wrapping policies here, and one of them is a function",
    advice.WRITE_POLICY,
)
INITIALIZED_IN_SEVERAL_WAYS = Blocker(
    "FSDP201-initialized-in-several-ways",
    "another model of this file that has a `param_init_fn`, too, has another kind of policy",
    "Put the code that wraps one of the models into another file, or shard one by hand.",
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
    "line {line} also uses this CustomPolicy, and FSDP2 has no form for that use",
    advice.PREDICATE,
)
POLICY_OWNER_UNSEEN = Blocker(
    "FSDP201-policy-owner-unseen",
    "the class of the object with this `{method}` cannot be seen: it may be a library's",
    advice.WRITE_POLICY,
)
POLICY_BASE_UNSEEN = Blocker(
    "FSDP201-policy-base-unseen",
    "`{base}`, whose code cannot be seen, may have its own `{method}`",
    advice.WRITE_POLICY,
)
POLICY_DECORATED = Blocker(
    "FSDP201-policy-decorated",
    "a decorator may change what this method returns, which is a wrapping policy",
    advice.WRITE_POLICY,
)
POLICY_LOOKED_UP = Blocker(
    "FSDP201-policy-looked-up",
    "a method that returns a wrapping policy is looked up by its name",
    advice.WRITE_POLICY,
)
POLICY_USE_UNSEEN = Blocker(
    "FSDP201-policy-use-unseen",
    "the code does not show how this wrapping policy is used",
    advice.WRITE_POLICY,
)
IGNORED_WITH_SIZE_POLICY = Blocker(
    "FSDP201-ignored-with-size-policy",
    "the call ignores parameters, and a policy by size does not count them",
    advice.WRITE_POLICY,
)
PARAM_INIT_FN_WITH_POLICY = Blocker(
    "FSDP201-param-init-fn-with-policy",
    "the call has a `param_init_fn` together with a policy by size or of three parameters",
    advice.META_VALUES,
)
ENABLE_WRAP_NOT_HEAD = Blocker(
    "FSDP201-enable-wrap-not-head",
    "`enable_wrap` is not the only context of a `with` block",
    advice.REPLACE_ENABLE_WRAP,
)
ENABLE_WRAP_CLASS = Blocker(
    "FSDP201-enable-wrap-class",
    "the class of this `enable_wrap` cannot be read here",
    advice.REPLACE_ENABLE_WRAP,
)
POLICY_UNBOUND = Blocker(
    "FSDP201-policy-unbound",
    "`{name}` is passed without its `{argument}`: FSDP calls it for each module without this "
    "argument, which raises TypeError",
    "Decide which modules are sharded, and bind the argument: "
    "`functools.partial({name}, {argument}=...)`.",
)
POLICY_CALLED = Blocker(
    "FSDP201-policy-called",
    "`{name}` is called here, which raises TypeError: FSDP itself calls a policy, for each "
    "module, with `module`, `recurse` and `nonwrapped_numel`",
    "Bind its arguments: `functools.partial({name}, ...)`.",
)
