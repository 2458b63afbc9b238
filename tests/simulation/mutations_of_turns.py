"""Mutations of what belongs to a turn: progress, registry, journal, records and savepoints."""

from __future__ import annotations

from tests.simulation.mutation import CALL, COMMIT, END_CALL, EVENTS, EVERY, FAIL, FENCED, RECORD, SEND, Mutation

_ENDED = FAIL + "test_a_nested_turn_whose_parent_has_ended_leaves_it_no_savepoint"

PROGRESS: dict[str, Mutation] = {
    "commit-no-version": Mutation(
        "commit", "if mode ~= 'plain' and ARGV[6] ~= '' and v ~= ARGV[6] then return refuse({'STALE', v}) end", ""
    ),
    "commit-no-replies": Mutation(
        "commit",
        "(kept and count(KEYS[6], '#r') or 0) < tonumber(ARGV[14])",
        "false",
        COMMIT + "test_a_refused_commit_changes_nothing",
    ),
    "commit-no-savepoints": Mutation(
        "commit",
        "own < tonumber(ARGV[15])",
        "false",
        COMMIT + "test_a_refused_commit_changes_nothing",
    ),
    "commit-unseen": Mutation(
        "commit",
        "if own > 0 and ARGV[15] == '-1' then return refuse({'UNSEEN', v}) end",
        "",
        COMMIT + "test_a_turn_that_has_not_asked_is_refused_when_there_are_savepoints",
    ),
    "commit-no-parent-savepoints": Mutation(
        "commit", "parent < tonumber(ARGV[16])", "false", COMMIT + "test_a_refused_commit_changes_nothing"
    ),
    "call-no-replies": Mutation(
        "call", "r < tonumber(ARGV[5]) or ", "", CALL + "test_a_store_behind_the_memory_of_the_turn_is_noticed"
    ),
    "call-no-savepoints": Mutation(
        "call", " or n < tonumber(ARGV[6])", "", CALL + "test_a_store_behind_the_memory_of_the_turn_is_noticed"
    ),
    "commit-parent-ended": Mutation(
        "commit",
        "if mode == 'nested' and not is_open(KEYS[5], KEYS[8]) then return refuse({'STALE', v}) end",
        "",
        COMMIT + "test_a_refused_commit_changes_nothing",
    ),
    "fail-parent-ended": Mutation(
        "fail", "if saved and mode == 'nested' and not is_open(KEYS[5], KEYS[4]) then", "if false then", _ENDED
    ),
    "fail-on-what-ended": Mutation(
        "fail", "if saved and mode == 'root' and has_below(KEYS[7], last) then", "if false then", _ENDED
    ),
    "fail-no-replies": Mutation(
        "fail", "count(KEYS[6], '#r') < tonumber(ARGV[12])", "false", FAIL + "test_a_refused_failure_changes_nothing"
    ),
    "fail-by-lost-wish": Mutation(
        "fail",
        "if ARGV[20] ~= '' and not entry(KEYS[12], ARGV[20], turn) then return refuse({'STALE'}) end",
        "",
        FAIL + "test_a_turn_is_ended_by_a_wish_that_the_server_knows",
    ),
    "end-by-lost-wish": Mutation(
        "end_call",
        "if journalled and ARGV[12] ~= '' and not entry(KEYS[8], ARGV[12], ARGV[11]) then right = false end",
        "",
        END_CALL + "test_a_turn_that_is_ended_by_a_lost_wish_gives_up_nothing",
    ),
    "fail-no-savepoints": Mutation(
        "fail", "count(KEYS[7], '#n') < tonumber(ARGV[13])", "false", FAIL + "test_a_refused_failure_changes_nothing"
    ),
    "fail-no-parent-savepoints": Mutation(
        "fail", "parent < tonumber(ARGV[14])", "false", FAIL + "test_a_refused_failure_changes_nothing"
    ),
    "replies-not-counted": Mutation(
        EVERY,
        "'#r', replies + 1)",
        "'#r', replies)",
        CALL + "test_a_reply_is_kept_in_the_journal_and_rings_the_caller",
    ),
    "versions-not-counted": Mutation("commit", "v = tostring(tonumber(v) + 1)", ""),
    "attempts-not-counted": Mutation("begin", "redis.call('HSET', KEYS[3]", "redis.call('HGET', KEYS[3]"),
    "attempt-not-ended": Mutation("commit", "redis.call('HDEL', KEYS[5], turn)", ""),
    "attempt-not-ended-by-failure": Mutation("fail", "redis.pcall('HDEL', KEYS[5], turn)", ""),
}

JOINT: dict[str, Mutation] = {
    "commit-overlooks-journals": Mutation("commit", "redis.call('EXISTS', KEYS[6], KEYS[7]) > 0", "false"),
    "one-spoils-the-next": Mutation(
        EVERY, "  bad = false\n", "", "test_joint.py::test_a_spoilt_key_is_named_to_the_one_whose_it_is"
    ),
    "an-error-ends-all": Mutation(
        EVERY,
        "pcall(one, ",
        "true, one(",
        "test_joint.py::test_an_error_in_one_is_the_outcome_of_that_one",
    ),
}

REGISTRY: dict[str, Mutation] = {
    f"{script}-no-registry": Mutation(
        script, f"if version ~= ARGV[{n}] then return refuse({{'STALE_REGISTRY', version}}) end", "", seen_by
    )
    for script, n, seen_by in (
        ("send", 1, SEND + "test_recipients_found_in_an_older_registry_are_refused"),
        ("commit", 17, COMMIT + "test_a_refused_commit_changes_nothing"),
        ("fanout", 5, EVENTS + "test_a_refused_fan_out_changes_nothing"),
        ("call", 8, CALL + "test_a_callee_found_in_an_older_registry_is_refused"),
    )
}

JOURNAL: dict[str, Mutation] = {
    "call-sent-twice": Mutation("call", "if state == 'S' or state == 'R' then", "if state == 'R' then"),
    "call-answered-sent-again": Mutation("call", "if state == 'S' or state == 'R' then", "if state == 'S' then"),
    "call-not-noted": Mutation(
        "call", "redis.call('HSET', journal, k, 'S' .. ARGV[7] .. id .. ' ' .. ARGV[11] .. ' ' .. ARGV[10])", ""
    ),
    "call-no-digest": Mutation(
        "call",
        "if digest ~= ARGV[7] then return refuse({'CHANGED', digest}) end",
        "",
        CALL + "test_another_call_in_the_same_place_is_noticed",
    ),
    "reply-not-noted": Mutation(EVERY, "redis.call('HSET', key, k, 'R' ..", "redis.call('HGET', key, k, 'R' .."),
    "answered-twice": Mutation(
        EVERY,
        "  if state == 'S' then\n    redis.call('HSET', key, k",
        "  if true then\n    redis.call('HSET', key, k",
        COMMIT + "test_a_call_has_one_outcome",
    ),
    "reply-to-nobody": Mutation(
        EVERY,
        "if not open then return end",
        "open = open or 'S12345678'",
    ),
    "journal-left": Mutation(EVERY, "redis.call('DEL', journal, savepoints)", "redis.call('DEL', savepoints)"),
    "savepoints-left": Mutation(EVERY, "redis.call('DEL', journal, savepoints)", "redis.call('DEL', journal)"),
    "retry-counts-twice": Mutation(
        "retry", "if last == ARGV[5] then return {'OK', failures} end", "", "test_scripts_retry.py"
    ),
    "retry-keeps-failure": Mutation(
        "retry", "for _, k in ipairs(answered) do redis.call('HDEL', KEYS[5], k) end", "", "test_scripts_retry.py"
    ),
    "retry-keeps-places": Mutation(
        "retry", "if step then stepped_back(KEYS[6], step) end", "", "test_scripts_retry.py"
    ),
    "any-request-answered": Mutation(EVERY, "return not other and open,", "return open,", "test_scripts_retry.py"),
    "retry-no-replies": Mutation("retry", "count(KEYS[5], '#r') < tonumber(ARGV[6])", "false", "test_scripts_retry.py"),
    "retry-no-savepoints": Mutation(
        "retry", "count(KEYS[6], '#n') < tonumber(ARGV[7])", "false", "test_scripts_retry.py"
    ),
    "retry-no-fence": Mutation("retry", FENCED, "", "test_scripts_retry.py"),
    "retry-no-input": Mutation(
        "retry", "if not entry(KEYS[3], ARGV[3], ARGV[4]) then return refuse({'DUP'}) end", "", "test_scripts_retry.py"
    ),
    "withdraw-keeps-journal": Mutation(
        "withdraw",
        "redis.call('DEL', KEYS[4], KEYS[5])",
        "",
        CALL + "test_a_callee_cannot_answer_a_withdrawn_call",
    ),
    "withdraw-answered": Mutation(
        "withdraw",
        "if not input or (journalled and string.sub(call, 1, 1) ~= 'S') then return 0 end",
        "",
        CALL + "test_an_answered_call_is_not_withdrawn",
    ),
}

_TOLD = RECORD + "test_a_store_behind_the_memory_of_the_turn_is_noticed"

RECORDS: dict[str, Mutation] = {
    "record-no-fence": Mutation(
        "record",
        "if not standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return refuse({'FENCED'}) end",
        "",
        RECORD + "test_nothing_is_recorded_by_a_zombie_or_for_a_turn_whose_input_is_gone",
    ),
    "record-no-input": Mutation(
        "record",
        "if not entry(KEYS[3], ARGV[3], ARGV[4]) then return refuse({'DUP'}) end",
        "",
        RECORD + "test_nothing_is_recorded_by_a_zombie_or_for_a_turn_whose_input_is_gone",
    ),
    "record-no-replies": Mutation("record", "r < tonumber(ARGV[8]) or ", "", _TOLD),
    "record-no-savepoints": Mutation("record", " or n < tonumber(ARGV[9])", "", _TOLD),
    "record-no-version": Mutation(
        "record", "if ARGV[10] ~= '' and (field(KEYS[6], 'v') or '0') ~= ARGV[10] then", "if false then", _TOLD
    ),
    "record-replaces": Mutation(
        "record", "if known then\n", "if false then\n", RECORD + "test_the_first_value_under_a_name_stays"
    ),
    "record-no-nonce": Mutation(
        "record",
        "nonce == ARGV[7] and {'KEPT'} or",
        "",
        RECORD + "test_the_same_question_again_is_told_that_its_value_is_kept",
    ),
    "record-among-calls": Mutation(
        "record", "'x:' .. ARGV[5]", "ARGV[5]", RECORD + "test_no_name_is_taken_for_a_call_or_a_count"
    ),
    "record-expires": Mutation(
        "record",
        "redis.call('PERSIST', journal)",
        "",
        RECORD + "test_a_record_does_not_expire_with_what_was_left_open",
    ),
}

_LEAVES = COMMIT + "test_a_nested_turn_leaves_a_savepoint_and_no_state"

SAVEPOINTS: dict[str, Mutation] = {
    "nested-leaves-nothing": Mutation(
        "commit", "if ARGV[7] ~= '' then keep_savepoint", "if false then keep_savepoint", _LEAVES
    ),
    "nested-not-the-last": Mutation("commit", ", 'last', name)", ")", _LEAVES),
    "nested-without-place": Mutation(
        "commit", "if name ~= '-' then redis.call('HSET', key, '@' .. name, place) end", "", _LEAVES
    ),
    "nested-not-counted": Mutation(
        "commit",
        "keep_savepoint(KEYS[8], ARGV[8], ARGV[7], parent + 1)",
        "keep_savepoint(KEYS[8], ARGV[8], ARGV[7], parent)",
        _LEAVES,
    ),
    "nested-writes-state": Mutation(
        "commit",
        "elseif mode == 'nested' then\n",
        "elseif mode == 'nested' then\n  redis.call('HSET', KEYS[4], 'v', v, 'd', ARGV[7])\n",
        COMMIT + "test_a_nested_turn_leaves_a_savepoint_and_no_state",
    ),
    "savepoints-not-told": Mutation("call", "or 'REPLY', r, n,", "or 'REPLY', r, 0,", _LEAVES),
    "failure-drops-savepoint": Mutation(
        "fail", "saved = mode ~= 'plain' and last and field(KEYS[7], last)", "saved = false"
    ),
    "failure-counts-no-version": Mutation("fail", "  v = v + 1\n", ""),
}
