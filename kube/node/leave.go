package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/lanes"
)

// Leave removes what this program has left on its node: the hook, the files of claims, and its folder among
// the kubelet's plugins. It removes nothing while lanes of pods are in force: their containers could not
// restart, and only the kubelet decides when those lanes go.
func Leave(ctx context.Context, c Config) error {
	l, _, err := lanes.OpenPatiently(ctx, c.Lanes) // locks out preparing claims
	if err != nil {
		return err
	}
	defer l.Close()
	var ofPods []string
	for _, p := range l.Placement.Lanes {
		if ask.Claim(p.Name) != "" {
			ofPods = append(ofPods, p.Name)
		}
	}
	if len(ofPods) > 0 {
		return fmt.Errorf("lanes %s: expected none of pods in force: delete the pods that have them, while "+
			"isolane-kube node runs here", strings.Join(ofPods, ", "))
	}
	n := &Node{Config: c}
	for _, pattern := range []string{n.cdiFile("*"), filepath.Join(n.CDI, tempPrefix+"*")} {
		files, gerr := filepath.Glob(pattern)
		err = errors.Join(err, gerr)
		for _, name := range files {
			err = errors.Join(err, os.Remove(name))
		}
	}
	return errors.Join(err, os.RemoveAll(filepath.Dir(n.hookPath())))
}
