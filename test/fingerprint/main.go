// Command fingerprint prints the state of this host that tests must leave as it was, as JSON. Given a file
// with its earlier output, it prints what has changed since, and exits with 1 if anything has.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"isolane.dev/isolane/host/hosttest"
)

func main() {
	changes, err := fingerprint(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "fingerprint:", err)
	}
	for _, c := range changes {
		fmt.Println(c)
	}
	if err != nil || len(changes) > 0 {
		os.Exit(1)
	}
}

func fingerprint(args []string) ([]string, error) {
	now, err := hosttest.ReadState()
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, json.NewEncoder(os.Stdout).Encode(now)
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return nil, err
	}
	var before hosttest.State
	if err = json.Unmarshal(data, &before); err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], err)
	}
	return now.Changes(before), nil
}
