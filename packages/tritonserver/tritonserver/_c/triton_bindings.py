"""Enumerations and errors under the names of Triton's bindings."""

from zmqtriton_extras.tritonserver import enums
from zmqtriton_extras.tritonserver.enums import *

TRITONSERVER_DataType = enums.DataType
TRITONSERVER_InferenceTraceActivity = enums.InferenceTraceActivity
TRITONSERVER_InferenceTraceLevel = enums.InferenceTraceLevel
TRITONSERVER_InstanceGroupKind = enums.InstanceGroupKind
TRITONSERVER_LogFormat = enums.LogFormat
TRITONSERVER_LogLevel = enums.LogLevel
TRITONSERVER_MemoryType = enums.MemoryType
TRITONSERVER_MetricFormat = enums.MetricFormat
TRITONSERVER_MetricKind = enums.MetricKind
TRITONSERVER_ModelBatchFlag = enums.ModelBatchFlag
TRITONSERVER_ModelControlMode = enums.ModelControlMode
TRITONSERVER_ModelIndexFlag = enums.ModelIndexFlag
TRITONSERVER_ModelTxnPropertyFlag = enums.ModelTxnPropertyFlag
TRITONSERVER_ParameterType = enums.ParameterType
TRITONSERVER_RateLimitMode = enums.RateLimitMode
TRITONSERVER_RequestFlag = enums.RequestFlag
TRITONSERVER_RequestReleaseFlag = enums.RequestReleaseFlag
TRITONSERVER_ResponseCompleteFlag = enums.ResponseCompleteFlag
