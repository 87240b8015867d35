package api

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// SetFinalizers replaces the finalizers of an object if the object is still as it was read.
func SetFinalizers(ctx context.Context, r dynamic.ResourceInterface, u *unstructured.Unstructured,
	all []string) error {
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": u.GetUID(),
		"resourceVersion": u.GetResourceVersion(), "finalizers": all}})
	if err == nil {
		_, err = r.Patch(ctx, u.GetName(), types.MergePatchType, change, metav1.PatchOptions{})
	}
	return err
}

// WriteStatus writes the status of an object of one of these types if the object is still as it was read. It
// returns the written object.
func WriteStatus(ctx context.Context, r dynamic.ResourceInterface, object any) (
	*unstructured.Unstructured, error) {
	u, err := To(object)
	if err != nil {
		return nil, err
	}
	return r.UpdateStatus(ctx, u, metav1.UpdateOptions{})
}
