package config

import "fmt"

// retired are keys that older builds had, with the value that every run has now. A run writes all its keys into its folder:
// what older builds wrote must stay readable.
var retired = func() map[string]string {
	keys := map[string]string{
		// The peers' arithmetic, which the golden tests hold by options without a key.
		"trainer.advantage.by_position":                "false",
		"trainer.advantage.carry_masked":               "false",
		"trainer.advantage.count_empty":                "false",
		"trainer.advantage.count_epsilon":              "0",
		"trainer.advantage.empty_nan":                  "false",
		"trainer.advantage.mask_advantages":            "true",
		"trainer.advantage.mask_returns":               "true",
		"trainer.advantage.mask_rewards":               "true",
		"trainer.advantage.reset_at_mask":              "false",
		"trainer.advantage.variance_floor":             "0",
		"trainer.loss.options.correction.mean_epsilon": "0",
		"trainer.loss.options.keep_non_finite":         "false",
		"trainer.loss.options.sum_all_advantages":      "false",
	}
	for _, of := range []string{"options", "value"} {
		section := "trainer.loss." + of + ".aggregation."
		keys[section+"count_empty_rows"], keys[section+"empty_nan"] = "false", "false"
		keys[section+"length_epsilon"], keys[section+"token_epsilon"] = "0", "0"
	}
	return keys
}()

// passedOver says whether a key is retired; the problem is why its value cannot be, "" if it is the value that every run has.
func passedOver(key string, value any) (problem string, is bool) {
	now, is := retired[key]
	if !is || fmt.Sprint(value) == now {
		return "", is
	}
	return fmt.Sprintf("%v: the key is gone, and every run has %s: take it out", value, now), true
}
