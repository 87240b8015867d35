package apps

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"isolane.dev/isolane/hub/api"
)

// The hub keeps a copy of each object. These keep only what it needs of one.

// trimManagers leaves out who has written which field.
func trimManagers(object any) (any, error) {
	if u, is := object.(*unstructured.Unstructured); is {
		u.SetManagedFields(nil)
	}
	return object, nil
}

// trimInstance keeps what the hub needs of an Instance.
func trimInstance(object any) (any, error) {
	u, is := object.(*unstructured.Unstructured)
	if !is { // it was trimmed before: a transform may see an object twice
		return object, nil
	}
	i, err := api.From[api.Instance](u)
	i.ManagedFields = nil
	i.Status = api.InstanceStatus{Phase: i.Status.Phase, Generation: i.Status.Generation,
		Message: i.Status.Message, Brief: i.Status.Brief}
	return &i, err
}

// trimHost leaves out findings and changes, and packs the machine, which is read once after each change: as
// maps it takes a hundred times as much memory.
func trimHost(object any) (any, error) {
	u, is := object.(*unstructured.Unstructured)
	if !is {
		return object, nil
	}
	u.SetManagedFields(nil)
	status, is := u.Object["status"].(map[string]any)
	if !is {
		return u, nil
	}
	delete(status, "findings")
	delete(status, "changes")
	machine, is := status["machine"].(map[string]any)
	if !is { // it is packed already: a transform may see an object twice
		return u, nil
	}
	var packed bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &packed)
	z, err := flate.NewWriter(text, flate.BestSpeed)
	if err == nil {
		err = errors.Join(json.NewEncoder(z).Encode(machine), z.Close(), text.Close())
	}
	status["machine"] = packed.String()
	return u, err
}

// machineOf returns the machine that trimHost has packed.
func machineOf(u *unstructured.Unstructured) ([]byte, error) {
	packed, is, err := unstructured.NestedString(u.Object, "status", "machine")
	if err == nil && (!is || packed == "") {
		err = errNotReported
	}
	if err != nil {
		return nil, err
	}
	text, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(flate.NewReader(bytes.NewReader(text)))
}
