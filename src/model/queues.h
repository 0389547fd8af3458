// The queues the model is compiled for. Model templates are instantiated for each of them at the
// bottom of their own .cpp: CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE_X).
#pragma once

#include "backend/cpu/queue.h"
#include "backend/hybrid/queue.h"
#include "backend/meta/queue.h"
#include "ops/checked.h"
#include "ops/queue.h"
#include "ops/reference/queue.h"
#include "ops/timed.h"

#define CACHALOT_FOR_EACH_QUEUE(X) \
  X(cpu::Queue)                    \
  X(hybrid::Queue)                 \
  X(reference::Queue)              \
  X(meta::Queue)                   \
  X(checked::Queue<cpu::Queue>)    \
  X(timed::Queue<cpu::Queue>)
